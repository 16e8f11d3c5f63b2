// A leaky bucket: requests in line, each at the time of its departure. The outlined place is that of
// the next request.

import { svg } from "../dom.js";
import { duration, number } from "../format.js";

const [LEFT, RIGHT] = [24, 262];
const MIDDLE = 44;
const MOST_DOTS = 80;

export function draw(cell) {
  const longest = Math.max(cell.longest_ms, 1);
  const x = (ms) => LEFT + (Math.min(ms, longest) / longest) * (RIGHT - LEFT);
  const skipped = cell.delay_after_units * cell.interval_ms;
  const next = Math.max(0, cell.empty_in_ms - skipped);
  const fits = cell.empty_in_ms + cell.interval_ms <= cell.longest_ms + 0.01;
  const radius = size(cell);
  return [
    svg("line", { class: "outline", x1: LEFT, x2: RIGHT, y1: MIDDLE - 16, y2: MIDDLE - 16 }),
    svg("line", { class: "outline", x1: LEFT, x2: RIGHT, y1: MIDDLE + 16, y2: MIDDLE + 16 }),
    svg("path", { class: "outline", d: `M${LEFT - 8} ${MIDDLE}h-12m5 -5l-5 5l5 5` }),
    svg("line", { class: "bound", x1: RIGHT, x2: RIGHT, y1: MIDDLE - 24, y2: MIDDLE + 24 }),
    ...departures(cell, skipped).map((ms) => dot("waiting", x(ms), radius)),
    fits ? dot("empty", x(next), radius) : null,
    svg("text", { x: LEFT, y: MIDDLE + 34, "text-anchor": "middle" }, "leaves"),
    svg("text", { x: RIGHT, y: MIDDLE + 34, "text-anchor": "middle" }, "full"),
  ];
}

export function caption(cell) {
  const waiting = departures(cell, cell.delay_after_units * cell.interval_ms).length;
  const pace = `one leaves every ${duration(cell.interval_ms)}`;
  const next = Math.max(0, cell.empty_in_ms - cell.delay_after_units * cell.interval_ms);
  const wait = next > 0 ? `the next waits ${duration(next)}` : "the next goes on at once";
  return [`${number(waiting)} in line`, `${wait}, ${pace}`];
}

/** Times to the departures of waiting units, last first. */
function departures(cell, skipped) {
  const times = [];
  let departure = cell.empty_in_ms - skipped - cell.interval_ms;
  while (departure > 0.01 && times.length < MOST_DOTS && cell.interval_ms > 0) {
    times.push(departure);
    departure -= cell.interval_ms;
  }
  return times;
}

function size(cell) {
  const room = ((RIGHT - LEFT) * cell.interval_ms) / Math.max(cell.longest_ms, 1);
  return Math.max(1.5, Math.min(8, room / 2 - 0.5));
}

function dot(name, x, radius) {
  return svg("circle", { class: name, cx: x, cy: MIDDLE, r: radius });
}
