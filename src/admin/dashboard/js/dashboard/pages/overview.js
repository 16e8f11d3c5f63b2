// What the proxy decides now, and which policies limit most.

import { element } from "../../dom.js";
import { duration, number, percent, rate } from "../../format.js";
import { createChart } from "../chart.js";
import { perDecision, SHOWN } from "../history.js";
import { decisionFigures, figure, keysText, legend, quotaAndAlgorithm, section, table } from "../parts.js";
import { href } from "../router.js";

export const TITLE = "Overview";

/** The span of the figures in milliseconds. */
const SPAN = 10_000;
const MOST_POLICIES = 12;

export function show(main, { figures }) {
  const parts = createParts();
  const decisions = decisionFigures("decisions per second, last 10\u00a0s");
  const chart = createChart();
  const top = table("Policies, the most limiting first", [
    ["Policy"],
    ["Quota"],
    ["Mode"],
    ["Decisions", "number"],
    ["Limited", "number"],
    ["Share limited", "number"],
    ["Delayed", "number"],
    ["Error", "number"],
    ["Keys now", "number"],
  ]);
  main.append(
    element("h1", {}, TITLE),
    element("dl", { class: "figures" }, ...Object.values(parts).map(({ node }) => node), ...decisions.nodes),
    element("p", { class: "small soft" }, "A request meets all policies of its route, and each decides: there may be more decisions than requests. Shadowed: a policy in shadow would have limited or delayed the request. Error: the store couldn’t decide."),
    section("Decisions per second, last 5 minutes", chart.node, legend()),
    section("Policies", element("p", { class: "small soft" }, "Rates are means of the last 10 s. In shadow: would have been limited or delayed. Keys now: those that have a bucket."), top.node),
  );
  return figures.listen(() => {
    showFigures(parts, figures);
    decisions.show(figures.history.recent(SPAN), perDecision((decision) => figures.policies.reduce((sum, policy) => sum + policy.decisions[decision], 0)));
    chart.show(figures.history.rates());
    top.fill(rows(figures), "The configuration has no policy.");
  });
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

function rows({ policies, history }) {
  const known = policies.map((policy) => {
    const recent = history.recent(SPAN, policy.name);
    const rates = SHOWN.map((decision) => recent[decision]);
    const all = rates.includes(null) ? null : rates.reduce((sum, rate) => sum + rate, 0);
    return { policy, recent, all };
  });
  known.sort((left, right) => right.recent.limited + right.recent.error - left.recent.limited - left.recent.error || right.all - left.all);
  return known.slice(0, MOST_POLICIES).map(({ policy, recent, all }) => {
    const cells = [
      element("a", { href: href("policies", policy.name) }, policy.name),
      quotaAndAlgorithm(policy),
      policy.mode.current,
      `${rate(all)}/s`,
      limitedText(policy, recent, (one) => `${rate(one)}/s`),
      all > 0 ? limitedText(policy, recent, (one) => percent(one / all)) : "–",
      `${rate(recent.delayed)}/s`,
      `${rate(recent.error)}/s`,
      keysText(policy),
    ];
    return { key: policy.name, cells };
  });
}

/** Limited requests, and those that only would have been. A policy may be in shadow for some keys. */
function limitedText({ mode }, { limited, shadowed }, words) {
  const isShadow = mode.current === "shadow";
  const parts = [(!isShadow || limited > 0) && words(limited), (isShadow || shadowed > 0) && `${words(shadowed)} in shadow`];
  return parts.filter(Boolean).join(", ");
}
