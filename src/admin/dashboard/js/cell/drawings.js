// Drawings of buckets: one for each algorithm, all on one base line.

import { svg } from "../dom.js";
import { lineOf, oldestWeight, usedShare } from "./advance.js";

/** The size of all drawings. */
export const VIEW = "0 0 280 84";

const [LEFT, RIGHT] = [20, 260];
const [TOP, BOTTOM] = [14, 66];
const MIDDLE = (LEFT + RIGHT) / 2;
/** Parts that are narrower have no gaps. */
const NARROW = 4;
/** More shapes than these would touch. */
const MOST_MARKS = 20;
const MOST_SHAPES = 60;

/** By algorithm, from a cell to shapes. */
export const DRAWINGS = {
  token_bucket: drawBucket,
  gcra: drawArrivalTime,
  leaky_bucket: drawQueue,
  fixed_window: drawWindow,
  sliding_window: drawParts,
  sliding_log: drawLog,
  concurrency: drawPlaces,
};

const line = (name, x1, y1, x2, y2) => svg("line", { class: name, x1, y1, x2, y2 });
const path = (name, d) => svg("path", { class: name, d });
const dot = (name, cx, cy, r) => svg("circle", { class: name, cx, cy, r });
const base = () => line("axis", LEFT, BOTTOM, RIGHT, BOTTOM);
const label = (text, x, y = BOTTOM + 15) => svg("text", { x, y, "text-anchor": "middle" }, text);

/** A box from one place to another, with gaps beside it if there is room. */
function box(name, from, to, top = TOP, bottom = BOTTOM) {
  const gap = to - from > NARROW ? 0.75 : 0;
  const width = Math.max(0.5, to - from - 2 * gap);
  return svg("rect", { class: name, x: from + gap, y: top, width, height: bottom - top });
}

/** A line across the base line, with a label below it. */
function mark(name, x, text) {
  return [line(name, x, TOP - 5, x, BOTTOM + 5), label(text, x)];
}

/** The height of a share above the base line. */
const level = (share) => BOTTOM - share * (BOTTOM - TOP);

/** From a part of `whole` to its place. */
function scale(whole) {
  return (part) => LEFT + Math.min(1, part / Math.max(whole, 1)) * (RIGHT - LEFT);
}

/** Shapes, each from its number. */
function times(count, draw) {
  return Array.from({ length: Math.max(0, count) }, (_, place) => draw(place));
}

/** Tokens as a liquid, and the next refill as a drop that falls. */
function drawBucket(cell) {
  const { capacity, refill_units: units, refill_every_ms: every, next_refill_in_ms: next } = cell;
  const left = (y) => LEFT + 10 + (14 * (y - TOP)) / (BOTTOM - TOP);
  const right = (y) => LEFT + RIGHT - left(y);
  const outline = (y) => `M${left(y)} ${y}L${left(BOTTOM)} ${BOTTOM}H${right(BOTTOM)}L${right(y)} ${y}`;
  const surface = level(1 - usedShare(cell));
  const marks = times(capacity > MOST_MARKS ? 0 : capacity - 1, (place) => {
    const y = level((place + 1) / capacity);
    return line("axis", left(y), y, left(y) + 8, y);
  });
  const fall = (1 - Math.min(1, next / every)) * (surface - 8);
  const drop = next === null || !every ? [] : [dot("used", MIDDLE, 4 + fall, units > 1 ? 5 : 3.5)];
  return [path("liquid", `${outline(surface)}Z`), ...marks, path("outline", outline(TOP)), ...drop];
}

/**
 * Time from now to the theoretical arrival time (TAT), a block for each unit. The outlined block is the
 * next request: it is refused if it would end beyond the bound.
 */
function drawArrivalTime({ tat_in_ms: tat, tau_ms: tau, interval_ms: interval }) {
  const x = scale(tau + interval);
  const fits = tat + interval <= tau + 0.01;
  const units = interval > 0 ? Math.ceil(tat / interval - 1e-9) : 0;
  const block = (end, size) => box("used", x(Math.max(0, end - size)), x(end));
  return [
    ...(units > MOST_SHAPES ? [block(tat, tat)] : times(units, (place) => block(tat - place * interval, interval))),
    box(fits ? "empty" : "bound", x(tat), x(tat + interval)),
    base(),
    ...mark("now", LEFT, "now"),
    ...mark("bound", x(tau), "bound"),
    ...(tat > 0 ? [label("TAT", x(tat), TOP - 7)] : []),
  ];
}

/** Requests in line, each at the time of its departure. The outlined place is that of the next request. */
function drawQueue(cell) {
  const { interval_ms: interval, longest_ms: longest, empty_in_ms: empty } = cell;
  const { waiting, next } = lineOf(cell);
  const x = scale(longest);
  const radius = Math.max(1.5, Math.min(8, (x(interval) - LEFT) / 2 - 0.5));
  const [y, half] = [level(0.5), 16];
  return [
    line("outline", LEFT, y - half, RIGHT, y - half),
    line("outline", LEFT, y + half, RIGHT, y + half),
    path("outline", `M${LEFT - 8} ${y}h-12m5 -5l-5 5l5 5`),
    ...times(Math.min(waiting, MOST_SHAPES), (place) => dot("waiting", x(next - (place + 1) * interval), y, radius)),
    ...(empty + interval <= longest + 0.01 ? [dot("empty", x(next), y, radius)] : []),
    label("leaves", LEFT),
    ...mark("bound", RIGHT, "full"),
  ];
}

/** A count as a level, and the instant within its window. */
function drawWindow(cell) {
  const { window_ends_in_ms: ends, window_ms: window } = cell;
  const [from, to] = [LEFT + 44, RIGHT - 44];
  const now = to - Math.min(1, ends / window) * (to - from);
  return [
    base(),
    box("liquid", from, to, level(usedShare(cell))),
    box(ends === null ? "empty" : "frame", from, to),
    line("bound", from, TOP, to, TOP),
    ...(ends === null ? [] : mark("now", now, "now")),
  ];
}

/**
 * A bar for each part of a sliding window, and the window as a frame that moves over them. The pale
 * share of the oldest part no longer counts.
 */
function drawParts(cell) {
  const { counts, limit_units: limit, part_elapsed_ms: elapsed, part_ms: part } = cell;
  const running = counts.length - 1;
  const width = (RIGHT - LEFT) / counts.length;
  const edge = (place) => LEFT + place * width;
  const now = edge(running + elapsed / part);
  const bar = (name, place, from, to) => box(name, from, to, level(Math.min(1, counts[place] / limit)));
  // A part that has just begun is still wide enough to be seen.
  const end = (place) => (place === running ? Math.max(edge(place) + 6, now) : edge(place + 1));
  const newer = [...counts.keys()].filter((place) => place > 0 && counts[place] > 0);
  const ticks = times(width > NARROW ? counts.length + 1 : 0, edge);
  return [
    ...(counts[0] ? [bar("pale", 0, LEFT, end(0)), bar("used", 0, edge(1 - oldestWeight(cell)), end(0))] : []),
    ...newer.map((place) => bar("used", place, edge(place), end(place))),
    ...ticks.map((x) => line("axis", x, BOTTOM, x, BOTTOM + 4)),
    base(),
    box("frame", now - running * width, now, TOP - 6, BOTTOM + 6),
    label("now", now),
  ];
}

/** A dot for each unit at its age, from now on the right to the instant at which it leaves on the left. */
function drawLog({ ages_ms: ages, window_ms: window }) {
  const radius = 3.4;
  const x = scale(window);
  const heights = new Map();
  const dots = ages.map((age) => {
    // Those that would overlap stand on one another.
    const column = Math.round(x(window - age) / (2 * radius));
    const height = heights.get(column) ?? 0;
    heights.set(column, height + 1);
    return dot("used", x(window - age), Math.max(TOP - 4, BOTTOM - 1 - radius * (1 + 2 * height)), radius);
  });
  return [base(), ...mark("bound", LEFT, "leaves"), ...mark("now", RIGHT, "now"), ...dots];
}

/** A place for each unit, filled while a request holds it. */
function drawPlaces(cell) {
  const { max_units: most, in_use_units: inUse } = cell;
  if (most > MOST_SHAPES) {
    const end = LEFT + usedShare(cell) * (RIGHT - LEFT);
    return [box("liquid", LEFT, end, level(0.75), level(0.25)), box("frame", LEFT, RIGHT, level(0.75), level(0.25))];
  }
  const columns = Math.min(20, Math.max(1, most));
  const size = Math.min((RIGHT - LEFT) / columns, (BOTTOM - TOP) / Math.ceil(most / columns), 24);
  const at = (begin, place) => begin + (place + 0.5) * size;
  return times(most, (place) => {
    const name = place < inUse ? "used" : "empty";
    return dot(name, at(LEFT, place % columns), at(TOP, Math.floor(place / columns)), size / 2 - 2);
  });
}
