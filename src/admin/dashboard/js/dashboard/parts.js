// Pieces that several pages are made of.

import { arrange, element, setText } from "../dom.js";
import { capital, duration, number, quotaText, rate } from "../format.js";
import { href } from "./router.js";

/** All decisions, as charts stack them from below upwards: first what passes, then what is refused. */
export const SHOWN = ["exempt", "allowed", "overflowed", "tagged", "routed", "shadowed", "delayed", "limited", "error"];

/** A figure with its unit and span; `show` writes the value, and the span if it changes. */
export function figure(label, span) {
  const value = element("dd", { class: "value" }, "–");
  const about = element("dd", { class: "small soft" }, span);
  const node = element("div", { class: "figure" }, element("dt", {}, label), value, about);
  return {
    node,
    show(text, changedSpan = span) {
      setText(value, text);
      setText(about, changedSpan);
    },
  };
}

/** Decisions that have a figure before the first one was made. */
const COMMON = ["allowed", "delayed", "limited", "shadowed"];

const wordFor = (decision) => (decision === "error" ? "undecided" : decision);

/** A figure for each decision, with its span. `show` takes the rates, null while they are unknown, counts since the start: rare decisions are hidden at 0, and what becomes of undecided requests. */
export function decisionFigures(span) {
  const order = [...COMMON, ...SHOWN.filter((decision) => !COMMON.includes(decision))];
  const figures = order.map((decision) => [decision, figure(capital(wordFor(decision)), span)]);
  return {
    nodes: figures.map(([, { node }]) => node),
    show(rates, counts, fate) {
      for (const [decision, { node, show }] of figures) {
        node.hidden = !COMMON.includes(decision) && !counts[decision];
        show(rate(rates?.[decision] ?? NaN), decision === "error" && fate ? `${fate} without the store; ${span}` : span);
      }
    },
  };
}

/** The number of a policy's keys with a bucket; Redis is not asked how many it has. */
export function keysText({ store, buckets }) {
  return store === "redis" ? "in Redis" : number(buckets.in_use);
}

/** The quota and the algorithm of a policy. */
export function quotaAndAlgorithm({ quota, unit, algorithm }) {
  return `${quotaText(quota, unit)} · ${algorithm.replaceAll("_", " ")}`;
}

/**
 * A table with these columns: `[heading, class]`. `fill` shows rows: each has a `key`, and `cells`,
 * which are texts or elements. A row whose key stays is changed in place, so that focus and selection
 * stay. With `isHeld`, rows stay where they are while a mouse is on them, also those that are gone.
 * Narrow windows show each row as a card; the roles keep it a table for assistive technology.
 */
export function table(caption, columns, isHeld = false) {
  const head = columns.map(([text, name = ""]) => {
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
    fill(rows, nothing) {
      const isKept = isHeld && shown.size > 0 && !shown.has(null) && node.matches(":hover") && matchMedia("(hover: hover)").matches;
      const found = new Map(rows.map(({ key, cells }) => [key, cells]));
      const keys = isKept ? shown.keys() : found.keys();
      const next = new Map(Array.from(keys, (key) => [key, changeRow(shown.get(key) ?? emptyRow(columns), found.get(key) ?? [])]));
      if (next.size === 0) {
        next.set(null, nothingRow(columns, nothing));
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

function emptyRow(columns) {
  const cells = columns.map(([heading, name = ""], place) =>
    place === 0 ? element("th", { scope: "row", role: "rowheader", class: name }) : element("td", { role: "cell", class: name, "data-heading": heading || null }),
  );
  return element("tr", { role: "row" }, ...cells);
}

function nothingRow(columns, text) {
  return element("tr", { role: "row" }, element("td", { role: "cell", colspan: columns.length, class: "soft" }, text));
}

function changeRow(row, cells) {
  cells.forEach((cell, place) => changeCell(row.children[place], cell));
  return row;
}

/** Elements that are equal do the same: the shown one stays. */
function changeCell(node, cell) {
  if (typeof cell === "string") {
    setText(node, cell);
    return;
  }
  const [before] = node.children;
  if (before?.isEqualNode(cell)) {
    return;
  }
  const hadFocus = before?.contains(document.activeElement) ?? false;
  node.replaceChildren(cell);
  if (hadFocus) {
    cell.focus({ preventScroll: true });
  }
}

/** What became of a policy's buckets at a reload. */
export function bucketsText({ policy, outcome, reason }) {
  return `${policy} ${outcome}${reason ? ` (${reason})` : ""}`;
}

/** Cells for the requests of the last seconds: their rate, 4xx, 5xx, the median and 99th percentile of their times. */
export function recentCells(recent) {
  if (recent === null) {
    return ["–", "–", "–", "–", "–"];
  }
  const { requests_per_s: all, "4xx_per_s": client, "5xx_per_s": server, p50_ms: p50, p99_ms: p99 } = recent;
  const time = (ms) => (ms === null ? "–" : duration(ms));
  return [`${rate(all)}/s`, `${rate(client)}/s`, `${rate(server)}/s`, time(p50), time(p99)];
}

/** Why nothing is copied. */
export const NO_COPY = "The browser does not let pages copy here.";

/** A square in the colour of a decision or an outcome. */
export function mark(name) {
  const node = element("i", { class: "mark" });
  node.style.color = `var(--${name})`;
  return node;
}

/** The legend of charts. */
export function legend() {
  return element("ul", { class: "plain row legend small" }, ...SHOWN.map((decision) => element("li", {}, mark(decision), wordFor(decision))));
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
  let [turn, timer] = [0, null];
  const again = async () => {
    const mine = (turn += 1);
    clearTimeout(timer);
    const problem = document.hidden ? undefined : await work().then(() => null, (failure) => failure);
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

/** Fields that choose rows; `fill` shows those, and returns how many of how many there are. */
export function finder(noun, placeholder, fill, fields = {}) {
  const search = element("input", { type: "search", "aria-label": `Search ${noun}`, placeholder });
  const found = element("p", { class: "small soft", role: "status" });
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    const [some, all] = fill((...texts) => texts.some((text) => text.toLowerCase().includes(wanted)));
    setText(found, `${number(some)} of ${number(all)} ${noun}`);
  };
  [search, ...Object.values(fields)].forEach((one) => one.addEventListener("input", show));
  const labelled = Object.entries(fields).map(([text, input]) => element("label", { class: "inline" }, text, input));
  return { node: element("div", { class: "row" }, search, ...labelled, found), show };
}
