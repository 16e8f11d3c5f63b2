// The axis above the timelines.

import { number } from "../format.js";
import { svg } from "../dom.js";
import { labels, placeOf } from "./view.js";

const HEIGHT = 18;

export function drawAxis(node, span) {
  const width = node.clientWidth;
  if (!width) {
    return;
  }
  node.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const texts = labels(span, width).map((at) => {
    const x = placeOf(at, span, width);
    return svg("text", { x, y: 13, "text-anchor": anchor(x, width) }, `${number(at / 1_000)}\u00a0s`);
  });
  node.replaceChildren(...texts);
}

function anchor(x, width) {
  if (x < 12) {
    return "start";
  }
  return x > width - 12 ? "end" : "middle";
}
