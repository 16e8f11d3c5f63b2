// A sliding window: a bar for each part, and the window as a frame that moves over them. The pale
// share of the oldest part no longer counts.

import { svg } from "../dom.js";
import { duration, number } from "../format.js";
import { oldestWeight } from "./advance.js";

const [LEFT, RIGHT] = [16, 264];
const [TOP, BOTTOM] = [16, 66];

export function draw(cell) {
  const parts = cell.counts.length;
  const width = (RIGHT - LEFT) / parts;
  const elapsed = cell.part_elapsed_ms / cell.part_ms;
  const now = LEFT + (parts - 1 + elapsed) * width;
  const start = Math.max(LEFT, now - (parts - 1) * width);
  const bars = cell.counts.flatMap((units, place) => bar(cell, units, place, width));
  return [
    ...bars,
    ...edges(parts, width),
    svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM }),
    svg("rect", { class: "frame", x: start, y: TOP - 6, width: now - start, height: BOTTOM - TOP + 12 }),
    svg("text", { x: now, y: BOTTOM + 16, "text-anchor": "middle" }, "now"),
  ];
}

export function caption(cell) {
  const main = `${number(cell.used_units)} of ${number(cell.limit_units)} used`;
  const parts = cell.counts.length - 1;
  const weight = Math.round(oldestWeight(cell) * 100);
  const what = parts > 1 ? `${number(parts)} parts of ${duration(cell.part_ms)}` : "two counters";
  return [main, `${what}, the oldest counts ${weight}\u00a0%`];
}

/** The edges of parts, unless they would be closer than people see. */
function edges(parts, width) {
  return Array.from({ length: width > 6 ? parts + 1 : 0 }, (_, place) => {
    const x = LEFT + place * width;
    return svg("line", { class: "axis", x1: x, x2: x, y1: BOTTOM, y2: BOTTOM + 4 });
  });
}

function bar(cell, units, place, width) {
  const share = cell.limit_units > 0 ? Math.min(1, units / cell.limit_units) : 0;
  const [x, gap] = [LEFT + place * width, width > 6 ? 1 : 0];
  const height = share * (BOTTOM - TOP);
  if (!units) {
    return [];
  }
  const isRunning = place === cell.counts.length - 1;
  // A part that has just begun is still wide enough to be seen.
  const passed = isRunning ? Math.max(6, (width * cell.part_elapsed_ms) / cell.part_ms) : width;
  const piece = (name, from, size) =>
    svg("rect", { class: name, x: from + gap, y: BOTTOM - height, width: Math.max(0.5, size - 2 * gap), height });
  if (place > 0) {
    return [piece("used", x, passed)];
  }
  const counted = oldestWeight(cell) * width;
  const pale = piece("unweighted", x, width);
  return counted > 2 * gap ? [pale, piece("used", x + width - counted, counted)] : [pale];
}
