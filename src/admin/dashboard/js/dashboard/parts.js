// Pieces that several pages are made of.

import { arrange, element, put, select, setText } from "../dom.js";
import { duration, number, rate } from "../format.js";
import { href } from "./router.js";

/** All decisions, as charts stack them from below upwards: first what passes, then what is refused. */
export const SHOWN = ["exempt", "allowed", "overflowed", "tagged", "routed", "shadowed", "delayed", "limited", "error"];

/** A figure with its unit and span. */
export function figure(label, value, span) {
  const about = element("dd", { class: "small soft" }, span);
  return element("div", { class: "figure" }, element("dt", {}, label), element("dd", { class: "value" }, value), about);
}

/**
 * A table whose columns are `[heading, cell, class]`: `cell` makes the text or the element of an item. `fill`
 * shows items. A row whose key stays is changed in place, so that focus and selection stay. With `isHeld`,
 * rows stay where they are while a mouse is on them, also those that are gone.
 * Narrow windows show each row as a card; the roles keep it a table for assistive technology.
 */
export function table(caption, columns, keyOf, isHeld = false) {
  const head = columns.map(([text, , name]) => {
    const heading = text || element("span", { class: "visually-hidden" }, "Changes");
    return element("th", { scope: "col", role: "columnheader", class: name }, heading);
  });
  const body = element("tbody", { role: "rowgroup" });
  const inner = element(
    "table",
    { role: "table" },
    element("caption", { class: "visually-hidden" }, caption),
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...head)),
    body,
  );
  const node = element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, inner);
  let shown = new Map();
  return {
    node,
    fill(items, nothing) {
      const isKept = isHeld && shown.size > 0 && !shown.has(null) && node.matches(":hover") && matchMedia("(hover: hover)").matches;
      const found = new Map(items.map((item) => [keyOf(item), item]));
      const keys = isKept ? shown.keys() : found.keys();
      const next = new Map(Array.from(keys, (key) => [key, rowOf(columns, found.get(key), shown.get(key))]));
      if (next.size === 0) {
        const cell = element("td", { role: "cell", colspan: columns.length, class: "soft" }, nothing);
        next.set(null, element("tr", { role: "row" }, cell));
      }
      const gone = [...shown].filter(([key, row]) => next.get(key) !== row).map(([, row]) => row);
      if (gone.some((row) => row.contains(document.activeElement))) {
        node.focus({ preventScroll: true });
      }
      gone.forEach((row) => row.remove());
      arrange(body, [...next.values()]);
      shown = next;
    },
  };
}

/** The row of an item: a new one, or the shown one, which changes in place. Without an item, it stays as it is. */
function rowOf(columns, item, row = element("tr", { role: "row" })) {
  const cellOf = ([heading, cell, name], place) =>
    place === 0
      ? element("th", { scope: "row", role: "rowheader", class: name }, cell(item))
      : element("td", { role: "cell", class: name, "data-heading": heading || null }, cell(item));
  if (item) {
    put(row, columns.map(cellOf));
  }
  return row;
}

/** What became of a policy's buckets at a reload. */
export function bucketsText({ policy, outcome, reason }) {
  return `${policy} ${outcome}${reason ? ` (${reason})` : ""}`;
}

/** A cell with a text, and a smaller one below it. */
export function twoLines(text, below) {
  return element("div", {}, text, element("div", { class: "small soft" }, below));
}

/** A column with a link to the policy of each item. */
export const POLICY = ["Policy", ({ policy }) => policyLink(policy)];

/**
 * Columns for the requests of the last seconds, of each item's `recent`: null while they are unknown, undefined
 * for empty cells. The 5xx stand out from the share on that is a problem.
 */
export const RECENT = [
  ["Requests", ({ requests_per_s: all }) => `${rate(all)}/s`],
  ["Limited", ({ limited_per_s: limited }) => `${rate(limited)}/s`],
  ["4xx", ({ "4xx_per_s": client }) => `${rate(client)}/s`],
  ["5xx", ({ "5xx_per_s": server, requests_per_s: all }) => element("span", { class: server > 0.05 * all ? "result failed" : null }, `${rate(server)}/s`)],
  ["Median", ({ p50_ms: time }) => duration(time)],
  ["99 % within", ({ p99_ms: time }) => duration(time)],
].map(([heading, cell]) => [heading, ({ recent }) => (recent ? cell(recent) : recent === null ? "–" : ""), "number"]);

/** Why nothing is copied. */
export const NO_COPY = "The browser does not let pages copy here.";

/** A square in the colour of a decision or an outcome. */
export function mark(name) {
  const node = element("i", { class: "mark" });
  node.style.color = `var(--${name})`;
  return node;
}

/** A link to a policy. */
export function policyLink(name) {
  return element("a", { href: href("policies", name) }, name);
}

/** A page's section. */
export function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

/**
 * Repeats `work`, which may be asynchronous, while somebody sees the tab; tells each problem, and null
 * after each success. Returns a function that ends it, and whose `again` is for work now.
 */
export function repeat(work, period, tell = () => {}) {
  let [turn, timer, last, isOver] = [0, null, null, false];
  // One at a time: no older answer comes after a newer one.
  const again = async () => {
    if (isOver) {
      return;
    }
    const mine = (turn += 1);
    clearTimeout(timer);
    await last;
    if (mine !== turn) {
      return;
    }
    last = document.hidden ? undefined : work().then(() => null, (failure) => failure);
    const problem = await last;
    if (mine === turn) {
      if (problem !== undefined) {
        tell(problem);
      }
      timer = setTimeout(again, period);
    }
  };
  document.addEventListener("visibilitychange", again);
  again();
  const end = () => {
    isOver = true;
    turn += 1;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", again);
  };
  return Object.assign(end, { again });
}

/** A place for problems of a page, read out when they change. */
export function problemLine() {
  const node = element("p", { class: "problem", role: "alert" });
  return { node, show: (problem) => setText(node, problem?.message ?? "") };
}

/**
 * Shows a page that looks again and again: its title, a line for problems, and these nodes. Returns what
 * `repeat` does.
 */
export function lookingPage(main, title, look, period, ...nodes) {
  const problem = problemLine();
  main.append(element("h1", {}, title), problem.node, ...nodes);
  return repeat(look, period, problem.show);
}

/**
 * Fields that choose among items: a search in the `texts` of each, and choices by label, whose options have an
 * `is` for the items that they want. `show` takes items and their total, and hands the wanted items and the chosen
 * options to `fill`.
 */
export function finder(noun, placeholder, texts, choices, fill) {
  const search = element("input", { type: "search", "aria-label": `Search ${noun}`, placeholder });
  const found = element("p", { class: "small soft", role: "status" });
  const inputs = Object.values(choices).map((options) => select(options));
  let [all, total] = [[], 0];
  const show = (items, of = items.length) => {
    [all, total] = [items, of];
    const text = search.value.trim().toLowerCase();
    const chosen = Object.values(choices).map((options, place) => options[inputs[place].value]);
    const isWanted = (item) => chosen.every(({ is }) => is?.(item) ?? true) && texts(item).some((one) => one.toLowerCase().includes(text));
    const wanted = all.filter(isWanted);
    fill(wanted, ...chosen);
    setText(found, `${number(wanted.length)} of ${number(total)} ${noun}`);
  };
  [search, ...inputs].forEach((input) => input.addEventListener("input", () => show(all, total)));
  const labelled = Object.keys(choices).map((label, place) => element("label", { class: "inline" }, label, inputs[place]));
  return { node: element("div", { class: "row" }, search, ...labelled, found), show };
}
