// A chart of rates over the last five minutes: areas on one another, one for each decision.

import { svg } from "../dom.js";
import { rate } from "../format.js";
import { SHOWN } from "./history.js";

const HEIGHT = 190;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 10, 22];
const SPAN = 300_000;
/** The longest time between two rates that follow each other: once a second, or each time that counts are asked for. */
const GAP = 4_500;

/** Fewer pixels than these have room for every second minute only. */
const NARROW = 560;
/** The pixels that the note of the missing history needs. */
const NOTE = 250;

/** A chart; `show` draws rates of the history. It is as wide as its place, so that texts keep their size. */
export function createChart() {
  const node = svg("svg", { class: "chart", role: "img", "aria-label": "No decisions yet" });
  let [width, shown] = [900, []];
  const draw = () => {
    const rates = shown;
    const now = rates.at(-1)?.at ?? 0;
    const sums = rates.map((point) => SHOWN.reduce((sum, decision) => sum + (point[decision] ?? 0), 0));
    const top = pleasant(Math.max(1, ...sums));
    const x = (at) => LEFT + (1 - (now - at) / SPAN) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    node.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    node.replaceChildren(...grid(top, y, width), ...runs(rates).flatMap((run) => areas(run, x, y)), ...times(width), ...missing(rates, x));
  };
  new ResizeObserver(([{ contentRect }]) => {
    width = Math.max(200, contentRect.width);
    draw();
  }).observe(node);
  return {
    node,
    show(rates) {
      shown = rates;
      draw();
      node.setAttribute("aria-label", `Decisions per second in the last 5 minutes. Now: ${words(rates.at(-1))}`);
    },
  };
}

function words(point) {
  const parts = SHOWN.map((decision) => `${rate(point?.[decision] ?? null)} ${decision}`);
  return parts.join(", ");
}

/** The smallest of 1, 2 and 5 times a power of ten that is no less. */
function pleasant(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value * 0.999);
}

function grid(top, y, width) {
  return [0, 0.5, 1].flatMap((share) => {
    const at = y(share * top);
    return [
      svg("line", { class: share ? "line" : "base", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, `${rate(share * top)}${share === 1 ? "/s" : ""}`),
    ];
  });
}

/** A mark and a label for each minute. */
function times(width) {
  return [5, 4, 3, 2, 1, 0].flatMap((minutes) => {
    const x = LEFT + (1 - minutes / 5) * (width - LEFT - RIGHT);
    const mark = svg("line", { class: "base", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 });
    const isNamed = width >= NARROW || minutes % 2 === 1 || minutes === 0;
    return isNamed ? [mark, timeLabel(minutes, x, width)] : [mark];
  });
}

function timeLabel(minutes, x, width) {
  const anchor = { 5: "start", 0: "end" }[minutes] ?? "middle";
  const ago = minutes === 5 || width >= NARROW ? " ago" : "";
  return svg("text", { x, y: HEIGHT - 6, "text-anchor": anchor }, minutes === 0 ? "now" : `${minutes} min${ago}`);
}

/** Says why the left of the chart is empty, if there is room for that. */
function missing(rates, x) {
  const begin = rates.length ? x(rates[0].at) : 0;
  const text = "drawn since this dashboard was opened";
  return begin - LEFT > NOTE ? [svg("text", { x: begin - 8, y: HEIGHT - BOTTOM - 8, "text-anchor": "end" }, text)] : [];
}

/** The rates between gaps: times of which the dashboard knows nothing. */
function runs(rates) {
  const found = [];
  let last = null;
  for (const point of rates) {
    if (point[SHOWN[0]] !== null) {
      if (last === null || point.at - last > GAP) {
        found.push([]);
      }
      found.at(-1).push(point);
      last = point.at;
    }
  }
  return found;
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
