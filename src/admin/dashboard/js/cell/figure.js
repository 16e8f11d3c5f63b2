// A bucket as a figure: the drawing of its algorithm, and the numbers in words.

import { element, setText, svg } from "../dom.js";
import { CAPTIONS } from "./captions.js";
import { DRAWINGS, VIEW } from "./drawings.js";

/** A figure that shows a cell; `show(null, captions)` says why there is none. */
export function cellFigure() {
  const drawing = svg("svg", { class: "drawing", viewBox: VIEW, role: "img", "aria-label": "No bucket yet" });
  const strong = element("b");
  const rest = element("span");
  const node = element("figure", { class: "cell" }, drawing, element("figcaption", {}, strong, rest));
  return {
    node,
    show(cell, missing = ["No drawing", "this instant is too long ago"]) {
      drawing.replaceChildren(...(cell ? DRAWINGS[cell.algorithm](cell) : []));
      const [main, more] = cell ? CAPTIONS[cell.algorithm](cell) : missing;
      setText(strong, main);
      setText(rest, more ? ` · ${more}` : "");
      drawing.setAttribute("aria-label", more ? `${main}, ${more}` : main);
    },
  };
}
