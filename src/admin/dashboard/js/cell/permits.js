// A concurrency limit: a place for each unit, filled while a request holds it.

import { svg } from "../dom.js";
import { number } from "../format.js";

const MOST_PLACES = 60;
const [LEFT, TOP, WIDTH, HEIGHT] = [16, 14, 248, 54];

export function draw(cell) {
  if (cell.max_units > MOST_PLACES) {
    return bar(cell);
  }
  const columns = Math.min(20, Math.max(1, cell.max_units));
  const size = Math.min(WIDTH / columns, HEIGHT / Math.ceil(Math.max(1, cell.max_units) / columns), 24);
  return Array.from({ length: cell.max_units }, (_, place) => {
    const [column, row] = [place % columns, Math.floor(place / columns)];
    return svg("circle", {
      class: place < cell.in_use_units ? "used" : "empty",
      cx: LEFT + (column + 0.5) * size,
      cy: TOP + (row + 0.5) * size,
      r: size / 2 - 2,
    });
  });
}

export function caption(cell) {
  const main = `${number(cell.in_use_units)} of ${number(cell.max_units)} in flight`;
  const waiting = `${number(cell.waiting_requests)} of ${number(cell.queue_requests)} waiting`;
  return [main, cell.queue_requests > 0 ? waiting : "each returns when its response has ended"];
}

function bar(cell) {
  const share = Math.min(1, cell.in_use_units / cell.max_units);
  return [
    svg("rect", { class: "liquid", x: LEFT, y: TOP + 12, width: share * WIDTH, height: 28 }),
    svg("rect", { class: "frame", x: LEFT, y: TOP + 12, width: WIDTH, height: 28 }),
  ];
}
