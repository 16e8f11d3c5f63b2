// Pieces that several pages are made of.

import { element, setText } from "../dom.js";
import { SHOWN } from "./history.js";

/** A figure with its unit and span; `show` writes the value. */
export function figure(label, span) {
  const value = element("dd", { class: "value" }, "–");
  const node = element("div", { class: "figure" }, element("dt", {}, label), value, element("dd", { class: "small soft" }, span));
  return { node, show: (text) => setText(value, text) };
}

/** A table with these columns: `[heading, class]`. `fill` replaces its rows, which are lists of cells. */
export function table(caption, columns) {
  const head = columns.map(([text, name = ""]) => element("th", { scope: "col", class: name }, text));
  const body = element("tbody");
  const inner = element("table", {}, element("caption", { class: "visually-hidden" }, caption), element("thead", {}, element("tr", {}, ...head)), body);
  const node = element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, inner);
  return {
    node,
    fill(rows, nothing) {
      body.replaceChildren(...(rows.length ? rows.map((row) => tableRow(columns, row)) : [emptyRow(columns, nothing)]));
    },
  };
}

function tableRow(columns, cells) {
  const nodes = cells.map((cell, place) => {
    const name = columns[place][1] ?? "";
    return place === 0 ? element("th", { scope: "row", class: name }, cell) : element("td", { class: name }, cell);
  });
  return element("tr", {}, ...nodes);
}

function emptyRow(columns, text) {
  return element("tr", {}, element("td", { colspan: columns.length, class: "soft" }, text));
}

/** The legend of charts. */
export function legend() {
  const items = SHOWN.map((decision) => element("li", {}, element("i", { class: `mark ${decision}` }), decision));
  return element("ul", { class: "plain legend small" }, ...items);
}

/** A page's section. */
export function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

/** Repeats `work`, which may be asynchronous, and tells what fails; returns a function that ends it. */
export function repeat(work, period, failed) {
  let isOver = false;
  let timer = null;
  const step = async () => {
    try {
      if (!document.hidden) {
        await work();
      }
    } catch (problem) {
      if (!isOver) {
        failed(problem);
      }
    }
    if (!isOver) {
      timer = setTimeout(step, period);
    }
  };
  step();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

/** A place for problems of a page, read out when they change. */
export function problemLine() {
  const node = element("p", { class: "problem", role: "alert" });
  return { node, show: (problem) => setText(node, problem ? problem.message : "") };
}
