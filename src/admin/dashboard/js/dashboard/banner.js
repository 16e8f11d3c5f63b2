// Above every page: what an operator has to look at now. Problems are folded to a line, and grouped by
// what they are about.

import { arrange, element, setText } from "../dom.js";
import { capital, count, minuteAgo } from "../format.js";
import { href } from "./router.js";

/** The pages where problems and notes of these kinds are looked into. */
const PAGES = {
  grant: ["the bans and grants", href("bans")],
  ReloadFailed: ["the configuration", href("configuration")],
  StoreDown: ["the policies", href("policies")],
};

/** The most rows that are shown without being folded. */
const FEW = 2;

/**
 * A banner: `show` replaces its problems or notes, each `{ kind, labels, text, severity, remedy, since }`.
 * Those of a policy or an upstream are a row, with the severity and the remedy of the first. A new one is
 * read out if there is an announcer.
 */
export function createBanner(node, noun, announcer = null) {
  let [shown, known] = [new Map(), new Set()];
  const summary = element("summary");
  const list = element("div");
  const folded = element("details", { class: "notice" }, summary, list);
  const summaryText = (all) => {
    const critical = all.filter(({ severity }) => severity === "critical").length;
    const counts = `${count(all.length, noun)}${critical ? `, ${critical} critical` : ""}`;
    return `${counts}: ${sentences(all.slice(0, 1))}${sinceText(all[0])}`;
  };
  return {
    show(all) {
      const rows = [...Map.groupBy(all, subjectOf).values()];
      shown = new Map(rows.map(([first]) => [idOf(first), shown.get(idOf(first)) ?? rowNode(first)]));
      const nodes = [...shown.values()];
      rows.forEach((row, place) => setText(nodes[place].firstChild, sentences(row)));
      const isFolded = rows.length > FEW;
      if (isFolded) {
        setText(summary, summaryText(all));
        arrange(list, nodes);
      }
      arrange(node, isFolded ? [folded] : nodes);
      const fresh = all.filter((one) => !known.has(idOf(one)));
      if (announcer && (fresh.length || !all.length)) {
        setText(announcer, fresh.length > FEW ? summaryText(all) : sentences(fresh));
      }
      known = new Set(all.map(idOf));
    },
  };
}

function subjectOf({ kind, labels: { policy, upstream } }) {
  return policy || upstream ? JSON.stringify([policy, upstream]) : kind;
}

/** A problem whose time or count runs on stays the same. */
function idOf({ kind, labels }) {
  return JSON.stringify([kind, labels]);
}

function rowNode(first) {
  const { severity = "", remedy } = first;
  const [name, address] = pageOf(first);
  const link = name ? [" ", element("a", { href: address }, `See ${name}`)] : [];
  const advice = `${sinceText(first)}${remedy ? ` ${capital(remedy)}.` : ""}`;
  return element("p", { class: `notice ${severity}` }, element("span"), element("span", { class: "remedy" }, advice), ...link);
}

/** The name and the address of the page where a problem or a note is looked into. */
function pageOf({ kind, labels: { policy, upstream } }) {
  const ofUpstream = upstream ? ["the upstreams", href("upstreams")] : [];
  return PAGES[kind] ?? (policy ? [`policy ${policy}`, href("policies", policy)] : ofUpstream);
}

function sinceText({ since }) {
  return since ? ` Since ${minuteAgo((Date.now() - Date.parse(since)) / 1_000)}.` : "";
}

/** Problems as sentences of their own: a link may follow them. */
export function sentences(problems) {
  return problems.map(({ text }) => capital(text).replace(/[^.!?]$/, "$&.")).join(" ");
}
