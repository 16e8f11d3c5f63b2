// The last hour, as /v1/history has it, with the events of that time.

import { element, select, setText } from "../dom.js";
import { percent, timeOfDay } from "../format.js";
import { createChart } from "./chart.js";
import { mark, repeat, SHOWN } from "./parts.js";

/** What becomes of requests, as charts stack it from below upwards. */
const WORDS = {
  passed: "Passed",
  beyond: "Beyond a quota, but passed",
  denied: "Denied (access, no route, invalid)",
  undecided: "Undecided by the store",
  limited: "Limited",
  failed: "Failed (5xx)",
};
const OUTCOMES = Object.keys(WORDS);

const PERIOD = 5_000;
const RANGES = { 300: "5 minutes", 900: "15 minutes", 3600: "1 hour" };
/** Charts show multiples of this time, in milliseconds. */
const LEAST = 300_000;

/**
 * A chart of the past with a choice of its range: of requests by outcome, below a bar of the same range, or
 * of the decisions of a policy.
 */
export function pastChart({ session, figures }, policy = null) {
  const bar = policy === null ? requestBar() : null;
  const chart = bar ? createChart(OUTCOMES, "requests") : createChart(SHOWN, "decisions");
  const range = select(RANGES, "3600");
  const said = element("p", { class: "small soft" });
  const look = async () => {
    const seconds = Number(range.value);
    const query = bar ? "" : `&policy=${encodeURIComponent(policy)}`;
    const { now, steps } = await session.get(`/v1/history?seconds=${seconds}${query}`);
    const shown = steps.map((step) => stepOf(step, policy));
    const at = Date.parse(now);
    const first = shown[0]?.begin ?? at;
    // A proxy that has just started has little to show of an hour.
    const known = Math.max(1, Math.ceil((at - first) / LEAST)) * LEAST;
    chart.show(shown, figures.events.marks(policy), Math.min(seconds * 1_000, known), at);
    const isShort = at - first < (seconds - 20) * 1_000;
    setText(said, isShort ? `Known since ${timeOfDay(first)}: the proxy has run since then.` : "");
    bar?.show(shown);
  };
  const label = element("label", { class: "inline" }, "Last", range);
  const node = element("div", { class: "stack" }, label, bar?.node, chart.node, said);
  const begin = () => {
    const end = repeat(look, PERIOD);
    range.addEventListener("change", end.again);
    return end;
  };
  return { node, begin };
}

/** A policy that decided nothing has no counts. */
function stepOf({ at, seconds, requests, decisions }, policy) {
  const end = Date.parse(at);
  return { begin: end - seconds * 1_000, end, counts: (policy === null ? requests : decisions) ?? {} };
}

/** The bar of requests: a part for each outcome, as wide as its share of the requests. */
function requestBar() {
  const parts = OUTCOMES.map((outcome) => {
    const share = element("b", {}, "–");
    return { outcome, bar: mark(outcome), share, item: element("li", {}, mark(outcome), `${WORDS[outcome]} `, share) };
  });
  const bar = element("div", { class: "shares", "aria-hidden": "true" }, ...parts.map((part) => part.bar));
  const list = element("ul", { class: "plain row legend small" }, ...parts.map(({ item }) => item));
  return {
    node: element("div", { class: "stack" }, bar, list),
    show(steps) {
      const sums = parts.map(({ outcome }) => steps.reduce((sum, { counts }) => sum + counts[outcome], 0));
      const all = sums.reduce((sum, count) => sum + count, 0);
      parts.forEach(({ bar: part, share }, place) => {
        part.style.flexGrow = sums[place];
        share.textContent = all > 0 ? percent(sums[place] / all) : "–";
      });
    },
  };
}
