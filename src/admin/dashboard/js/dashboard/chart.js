// A chart of rates over the last five minutes: areas on one another, one for each decision.

import { svg } from "../dom.js";
import { rate } from "../format.js";
import { SHOWN } from "./history.js";

const [WIDTH, HEIGHT] = [900, 190];
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 10, 22];
const SPAN = 300_000;

/** A chart; `show` draws rates of the history. */
export function createChart() {
  const node = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "No decisions yet" });
  return {
    node,
    show(rates) {
      const now = rates.at(-1)?.at ?? 0;
      const sums = rates.map((point) => SHOWN.reduce((sum, decision) => sum + point[decision], 0));
      const top = pleasant(Math.max(1, ...sums));
      const x = (at) => LEFT + (1 - (now - at) / SPAN) * (WIDTH - LEFT - RIGHT);
      const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
      node.replaceChildren(...grid(top, y), ...areas(rates, x, y), ...times());
      node.setAttribute("aria-label", `Decisions per second in the last 5 minutes. Now: ${words(rates.at(-1))}`);
    },
  };
}

function words(point) {
  const parts = SHOWN.map((decision) => `${rate(point?.[decision] ?? 0)} ${decision}`);
  return parts.join(", ");
}

/** The smallest of 1, 2 and 5 times a power of ten that is no less. */
function pleasant(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value * 0.999);
}

function grid(top, y) {
  return [0, 0.5, 1].flatMap((share) => {
    const at = y(share * top);
    return [
      svg("line", { class: share ? "line" : "base", x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }),
      svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, `${rate(share * top)}${share === 1 ? "/s" : ""}`),
    ];
  });
}

function times() {
  const labels = [
    [0, "5 min ago", "start"],
    [0.6, "2 min ago", "middle"],
    [1, "now", "end"],
  ];
  return labels.map(([share, text, anchor]) => {
    const x = LEFT + share * (WIDTH - LEFT - RIGHT);
    return svg("text", { x, y: HEIGHT - 6, "text-anchor": anchor }, text);
  });
}

function areas(rates, x, y) {
  const base = new Array(rates.length).fill(0);
  return SHOWN.map((decision) => {
    const lower = [...base];
    rates.forEach((point, place) => {
      base[place] += point[decision];
    });
    return svg("path", { class: `area ${decision}`, d: outline(rates, lower, base, x, y) });
  });
}

/** The area between two lines of steps: a rate holds for its whole second. */
function outline(rates, lower, upper, x, y) {
  if (rates.length < 2) {
    return "";
  }
  const point = (place, value) => `${x(rates[place].at).toFixed(1)} ${y(value).toFixed(1)}`;
  const there = upper.map((value, place) => point(place, value));
  const back = lower.map((value, place) => point(place, value)).reverse();
  return `M${there.join("L")}L${back.join("L")}Z`;
}
