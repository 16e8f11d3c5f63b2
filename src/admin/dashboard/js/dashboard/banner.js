// Above every page: what an operator has to look at now. Problems are folded to a line, and grouped by
// what they are about.

import { arrange, element, setText } from "../dom.js";
import { capital, count, minuteAgo } from "../format.js";
import { href } from "./router.js";

/** The page where a problem or a note is looked into, by the begin of its sentence. */
const PAGES = [
  [/a grant by an operator$/, () => ["the bans and grants", href("bans")]],
  [/^the last reload/, () => ["the configuration", href("configuration")]],
  [/^upstream/, () => ["the upstreams", href("upstreams")]],
  [/^policy (\S+?):? /, (name) => [`policy ${name}`, href("policies", name)]],
  [/^redis/, () => ["the policies", href("policies")]],
];

/** The most problems that are shown without being folded. */
const FEW = 2;

/**
 * A banner: `show` replaces its problems or notes, each `{ text, severity, remedy, since }`. More than two are
 * folded to a line that opens. A new one is read out if there is an announcer.
 */
export function createBanner(node, announcer) {
  let shown = new Map();
  const summary = element("summary");
  const list = element("div");
  const folded = element("details", { class: "notice" }, summary, list);
  return {
    show(all) {
      const problems = bySubject(all);
      const next = new Map(problems.map((problem) => [identity(problem.text), shown.get(identity(problem.text)) ?? problemNode(problem)]));
      const fresh = problems.filter(({ text }) => !shown.has(identity(text)));
      problems.forEach(({ text }) => setText(next.get(identity(text)).firstChild, sentenceOf(text)));
      [...shown].filter(([key]) => !next.has(key)).forEach(([, one]) => one.remove());
      const nodes = [...next.values()];
      if (problems.length > FEW) {
        setText(summary, summaryText(all));
        arrange(list, nodes);
        arrange(node, [folded]);
      } else {
        folded.remove();
        arrange(node, nodes);
      }
      if (announcer && (fresh.length || !problems.length)) {
        setText(announcer, fresh.length > FEW ? summaryText(all) : fresh.map(({ text }) => sentenceOf(text)).join(" "));
      }
      shown = next;
    },
  };
}

/** The problems of one upstream or policy as one, with the severity and the remedy of the first. */
function bySubject(problems) {
  const groups = Map.groupBy(problems, ({ text }) => /^(upstream|policy) [^\s:]+/.exec(text)?.[0] ?? text);
  return [...groups].map(([subject, [first, ...others]]) => ({ ...first, text: [first.text, ...others.map(({ text }) => text.slice(subject.length).replace(/^:? /, ""))].join("; ") }));
}

function summaryText(problems) {
  const critical = problems.filter(({ severity }) => severity === "critical").length;
  return `${count(problems.length, "problem")}${critical ? `, ${critical} critical` : ""}: ${sentenceOf(problems[0].text)}${sinceText(problems[0].since)}`;
}

/** A problem whose time or count runs on stays the same. */
function identity(text) {
  return text.replace(/(?<!\S)\d+(?!\S)/g, "");
}

function problemNode({ text, severity = "", remedy = "", since }) {
  const [pattern, target] = PAGES.find(([known]) => known.test(text)) ?? [];
  const [name, address] = target?.(pattern.exec(text)[1]) ?? [];
  const link = name ? [" ", element("a", { href: address }, `See ${name}`)] : [];
  const advice = remedy ? [" ", element("span", { class: "remedy" }, `${capital(remedy)}.`)] : [];
  return element("p", { class: `notice ${severity}` }, element("span"), element("span", { class: "remedy" }, sinceText(since)), ...advice, ...link);
}

function sinceText(since) {
  return since ? ` Since ${minuteAgo((Date.now() - Date.parse(since)) / 1_000)}.` : "";
}

/** A problem as a sentence of its own: a link follows it. */
export function sentenceOf(problem) {
  return capital(problem).replace(/[^.!?]$/, "$&.");
}
