// A chart of rates over the last minutes: areas on one another, one for each series, and marks of what
// happened. The steps come from /v1/history.

import { svg } from "../dom.js";
import { minute, rate, timeOfDay } from "../format.js";

const HEIGHT = 190;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 16, 22];
/** The longest pause between two steps that follow each other, in milliseconds. */
const PAUSE = 3_000;
/** Fewer pixels than these have room for every second label only. */
const NARROW = 560;
/** Marks that are closer than these pixels are one. */
const CLOSE = 6;

/** A chart of series, from below upwards. It is as wide as its place, so that texts keep their size. */
export function createChart(names, noun) {
  const node = svg("svg", { class: "chart", height: HEIGHT, role: "img", "aria-label": `No ${noun} yet` });
  let width = 900;
  let shown = { steps: [], marks: [], span: 3_600_000, now: 0 };
  const draw = () => {
    const { steps, marks, span, now } = shown;
    const top = pleasant(Math.max(1, ...steps.map(({ rates }) => rates.reduce((sum, one) => sum + one, 0))));
    const x = (at) => LEFT + Math.max(0, 1 - (now - at) / span) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    node.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    node.replaceChildren(...grid(top, y, width), ...runs(steps).flatMap((run) => areas(names, run, x, y)), ...steps.map((step) => readout(names, step, x)), ...times(span, now, width), ...flags(marks, x));
  };
  new ResizeObserver(([{ contentRect }]) => {
    width = Math.max(200, contentRect.width);
    draw();
  }).observe(node);
  return {
    node,
    /** Steps with counts, oldest first, and marks `{ at, text }`, over the last `span` milliseconds before `now`. */
    show(counted, marks, span, now) {
      const steps = counted.map(({ begin, end, counts }) => {
        return { begin, end, rates: names.map((name) => ((counts[name] ?? 0) * 1_000) / (end - begin)) };
      });
      shown = { steps, marks: marks.filter(({ at }) => at > now - span), span, now };
      draw();
      const last = steps.at(-1);
      const words = last ? names.map((name, series) => `${rate(last.rates[series])} ${name}`).join(", ") : "none";
      node.setAttribute("aria-label", `${noun} a second in the last ${span / 60_000} minutes. Now: ${words}`);
    },
  };
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

/** The figures of a step, as a tip under the pointer. */
function readout(names, { begin, end, rates }, x) {
  const said = names.flatMap((name, place) => (rates[place] > 0 ? [`${rate(rates[place])}/s ${name}`] : []));
  const tip = svg("title", {}, `${timeOfDay(begin)} to ${timeOfDay(end)}:\n${said.join("\n") || "nothing"}`);
  return svg("rect", { class: "step", x: x(begin), y: TOP, width: Math.max(0, x(end) - x(begin)), height: HEIGHT - TOP - BOTTOM }, tip);
}

/** Six marks and labels of the time. */
function times(span, now, width) {
  return [5, 4, 3, 2, 1, 0].flatMap((part) => {
    const x = LEFT + (1 - part / 5) * (width - LEFT - RIGHT);
    const mark = svg("line", { class: "base", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 });
    const anchor = { 5: "start", 0: "end" }[part] ?? "middle";
    const text = part === 0 ? "now" : minute(now - (part * span) / 5);
    const label = svg("text", { x, y: HEIGHT - 6, "text-anchor": anchor }, text);
    return width >= NARROW || part % 2 === 1 || part === 0 ? [mark, label] : [mark];
  });
}

/** The steps between gaps: times of which the proxy knows nothing. */
function runs(steps) {
  const found = [];
  for (const step of steps) {
    const last = found.at(-1)?.at(-1);
    if (!last || step.begin - last.end > PAUSE) {
      found.push([]);
    }
    found.at(-1).push(step);
  }
  return found;
}

function areas(names, run, x, y) {
  const base = run.map(() => 0);
  return names.map((name, series) => {
    const lower = [...base];
    run.forEach(({ rates }, place) => {
      base[place] += rates[series];
    });
    const area = svg("path", { class: `area ${name}`, d: outline(run, lower, base, x, y) });
    area.style.fill = `var(--${name})`;
    return area;
  });
}

/** The area between two lines: a rate holds for its whole step. */
function outline(run, lower, upper, x, y) {
  const corners = (values) => run.flatMap(({ begin, end }, place) => [begin, end].map((at) => `${x(at).toFixed(1)} ${y(values[place]).toFixed(1)}`));
  return `M${corners(upper).join("L")}L${corners(lower).reverse().join("L")}Z`;
}

/** A flag for the marks at one place; its tip says what happened. */
function flags(marks, x) {
  const groups = [];
  for (const { at, text, isMinor = false } of marks) {
    const last = groups.at(-1);
    if (last && x(at) - last.x < CLOSE) {
      last.texts.push(text);
      last.isMinor &&= isMinor;
    } else {
      groups.push({ x: x(at), texts: [text], isMinor });
    }
  }
  return groups.map(({ x: at, texts, isMinor }) => svg(
    "g",
    { class: isMinor ? "flag minor" : "flag" },
    svg("title", {}, texts.join("\n")),
    svg("line", { x1: at, x2: at, y1: TOP - 6, y2: HEIGHT - BOTTOM }),
    svg("path", { d: `M${at - 4} ${TOP - 12}h8l-4 7Z` }),
  ));
}
