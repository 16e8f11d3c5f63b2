// What happens now, who is limited, and by what.

import { element } from "../../dom.js";
import { number, percent, rate } from "../../format.js";
import { figure, recentCells, section } from "../parts.js";
import { pastChart } from "../past.js";
import { href } from "../router.js";
import { LIMITED, policyTable, whoSection } from "./policies.js";

export const TITLE = "Overview";

const MOST_POLICIES = 8;
const SPAN = "last 10 to 20\u00a0s";

export function show(main, context) {
  const { session, figures } = context;
  const parts = createParts();
  const past = pastChart(context);
  const who = whoSection(session, "Who is limited most, in the last 5\u00a0minutes", "Clients that were limited most in the last 5 minutes", LIMITED, "by=limited&window=5m", element("a", { href: href("offenders") }, "More"));
  const policies = policyTable(context, "Policies, the most limiting first");
  const all = element("a", { href: href("policies") }, "All policies");
  main.append(
    element("h1", {}, TITLE),
    element("dl", { class: "figures" }, ...Object.values(parts).map(({ node }) => node)),
    section("Requests", past.node),
    who.node,
    section("Policies", policies.node, all),
  );
  const ends = [
    past.begin(),
    who.begin(),
    figures.listen(() => {
      showFigures(parts, figures);
      policies.fill(MOST_POLICIES);
      all.textContent = `All ${number(figures.policies.length)} policies`;
    }),
  ];
  return () => ends.forEach((end) => end());
}

function createParts() {
  return {
    requests: figure("Requests", `per second, ${SPAN}`),
    limited: figure("Limited", `requests per second, ${SPAN}`),
    errors: figure("5xx", `responses per second, ${SPAN}`),
    p50: figure("Median time", `of a request, ${SPAN}`),
    p99: figure("99th percentile", `of a request, ${SPAN}`),
    connections: figure("Connections", "open now"),
  };
}

function showFigures(parts, { status: { recent, connections: { open, max } } }) {
  const { requests_per_s: all = NaN, limited_per_s: limited = NaN } = recent ?? {};
  parts.limited.show(rate(limited), `requests per second, ${all > 0 ? percent(limited / all) : "–"} of all, ${SPAN}`);
  const [requests, , errors, p50, p99] = recentCells(recent);
  parts.requests.show(requests.replace("/s", ""));
  parts.errors.show(errors.replace("/s", ""));
  parts.p50.show(p50);
  parts.p99.show(p99);
  parts.connections.show(number(open), `open now, limit ${number(max)}`);
}
