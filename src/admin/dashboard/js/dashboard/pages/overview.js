// What happens now, who is limited, and by what.

import { element, put } from "../../dom.js";
import { duration, number, percent, rate } from "../../format.js";
import { figure, section } from "../parts.js";
import { pastChart } from "../past.js";
import { href } from "../router.js";
import { firstClients } from "./offenders.js";
import { policyTable } from "./policies.js";

export const TITLE = "Overview";

const MOST_POLICIES = 8;
const SPAN = "last 10 to 20\u00a0s";

export function show(main, context) {
  const { session, figures } = context;
  const summary = element("dl", { class: "figures" });
  const past = pastChart(context);
  const who = firstClients(session, "limited", null, element("a", { href: href("offenders") }, "More"));
  const policies = policyTable(context, "Policies, the most limiting first");
  const all = element("a", { href: href("policies") }, "All policies");
  main.append(
    element("h1", {}, TITLE),
    summary,
    section("Requests", past.node),
    who.node,
    section("Policies", policies.node, all),
  );
  const ends = [
    past.begin(),
    who.begin(),
    figures.listen(() => {
      put(summary, figuresOf(figures.status));
      policies.fill(figures.policies, MOST_POLICIES);
      all.textContent = `All ${number(figures.policies.length)} policies`;
    }),
  ];
  return () => ends.forEach((end) => end());
}

function figuresOf({ recent, connections: { open, max } }) {
  const { requests_per_s: all, limited_per_s: limited, "5xx_per_s": errors, p50_ms: p50, p99_ms: p99 } = recent ?? {};
  return [
    figure("Requests", rate(all), `per second, ${SPAN}`),
    figure("Limited", rate(limited), `requests per second, ${all > 0 ? percent(limited / all) : "–"} of all, ${SPAN}`),
    figure("5xx", rate(errors), `responses per second, ${SPAN}`),
    figure("Median time", duration(p50), `of a request, ${SPAN}`),
    figure("99th percentile", duration(p99), `of a request, ${SPAN}`),
    figure("Connections", number(open), `open now, limit ${number(max)}`),
  ];
}
