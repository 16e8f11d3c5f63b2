// What happens now, who is limited, and by what.

import { element } from "../../dom.js";
import { duration, number, rate } from "../../format.js";
import { figure, repeat, section } from "../parts.js";
import { OUTCOMES, pastChart, requestBar } from "../past.js";
import { href } from "../router.js";
import { topTable } from "./offenders.js";
import { policyTable } from "./policies.js";

export const TITLE = "Overview";

/** The span of the figures in milliseconds. */
const SPAN = 10_000;
const MOST_POLICIES = 8;
const MOST_CLIENTS = 5;
const PERIOD = 3_500;

export function show(main, context) {
  const { session, figures } = context;
  const parts = createParts();
  const bar = requestBar();
  const past = pastChart(context, OUTCOMES, null, (steps) => bar.show(steps));
  const who = topTable(session, "Clients that were limited most in the last 5 minutes");
  const policies = policyTable("Policies, the most limiting first");
  const all = element("a", { href: href("policies") }, "All policies");
  main.append(
    element("h1", {}, TITLE),
    element("dl", { class: "figures" }, ...Object.values(parts).map(({ node }) => node)),
    section("Requests", bar.node, past.node),
    section("Who is limited most", who.node, element("a", { href: href("offenders") }, "More")),
    section("Policies", policies.node, all),
  );
  const look = async () => who.fill((await session.get(`/v1/top?by=limited&window=5m&limit=${MOST_CLIENTS}`)).items);
  const ends = [
    past.begin(),
    repeat(look, PERIOD, () => {}),
    figures.listen(() => {
      showFigures(parts, figures);
      policies.fill(figures, MOST_POLICIES);
      all.textContent = `All ${number(figures.policies.length)} policies`;
    }),
  ];
  return () => ends.forEach((end) => end());
}

function createParts() {
  return {
    requests: figure("Requests", "per second, last 10\u00a0s"),
    errors: figure("5xx", "responses per second, last 10\u00a0s"),
    p50: figure("Median time", "of a request, last 10\u00a0s"),
    p99: figure("99th percentile", "of a request, last 10\u00a0s"),
    connections: figure("Connections", "open now"),
  };
}

function showFigures(parts, { history, live, status }) {
  const { p50_ms: p50 = null, p99_ms: p99 = null } = live?.latency ?? {};
  parts.requests.show(live ? rate(history.requests(SPAN)) : "–");
  parts.errors.show(live ? rate(history.errors(SPAN)) : "–");
  parts.p50.show(p50 === null ? "–" : duration(p50));
  parts.p99.show(p99 === null ? "–" : duration(p99));
  const { open, max } = live?.connections ?? status.connections;
  parts.connections.show(number(open), `open now, limit ${number(max)}`);
}
