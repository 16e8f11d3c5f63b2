// A bucket as a figure: the drawing of its algorithm, and the numbers in words.

import { element, setText, svg } from "../dom.js";
import * as bucket from "./bucket.js";
import * as gcra from "./gcra.js";
import * as log from "./log.js";
import * as permits from "./permits.js";
import * as queue from "./queue.js";
import * as sliding from "./sliding.js";
import * as window from "./window.js";

const DRAWINGS = {
  token_bucket: bucket,
  gcra,
  leaky_bucket: queue,
  fixed_window: window,
  sliding_window: sliding,
  sliding_log: log,
  concurrency: permits,
};

/** A figure that shows a cell; `show(null, captions)` says why there is none. */
export function cellFigure() {
  const drawing = svg("svg", { viewBox: "0 0 280 84", role: "img", "aria-label": "No bucket yet" });
  const strong = element("b");
  const rest = element("span");
  const node = element("figure", { class: "cell" }, drawing, element("figcaption", {}, strong, rest));
  return {
    node,
    show(cell, missing = ["No drawing", "this instant is too long ago"]) {
      const art = cell && DRAWINGS[cell.algorithm];
      drawing.replaceChildren(...(art ? art.draw(cell).filter((part) => part !== null) : []));
      const [main, more] = art ? art.caption(cell) : missing;
      setText(strong, main);
      setText(rest, more ? ` · ${more}` : "");
      drawing.setAttribute("aria-label", more ? `${main}, ${more}` : main);
    },
  };
}
