// The banner above every page: what an operator has to look at now.

import { element } from "../dom.js";

let shown = "";

/** Shows these problems; nothing for none. */
export function showProblems(banner, problems) {
  const text = problems.join("\n");
  if (text === shown) {
    return;
  }
  shown = text;
  banner.replaceChildren(...problems.map((problem) => element("p", { class: "notice" }, problem)));
}
