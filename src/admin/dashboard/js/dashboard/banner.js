// Above every page: what an operator has to look at now, and what has happened last. Events have a
// place of their own height, so that they do not move the page.

import { arrange, element, setText } from "../dom.js";
import { capital, instant, timeOfDay } from "../format.js";
import { hostWords } from "./host_words.js";
import { href } from "./router.js";

const MOST_EVENTS = 5;

/** The page where a problem is looked into, by the begin of its sentence. */
const PAGES = [
  [/^the last reload/, () => ["the configuration", href("configuration")]],
  [/^upstream/, () => ["the upstreams", href("upstreams")]],
  [/^policy (\S+?):? /, (name) => [`policy ${name}`, href("policies", name)]],
  [/^redis/, () => ["the policies", href("policies")]],
];

/** The banner: `show` replaces its problems. A problem that is new is read out. */
export function createBanner(node, announcer) {
  let shown = new Map();
  return {
    show(problems) {
      const next = new Map(problems.map((text) => [identity(text), shown.get(identity(text)) ?? problemNode(text)]));
      const fresh = problems.filter((text) => !shown.has(identity(text)));
      problems.forEach((text) => setText(next.get(identity(text)).firstChild, sentenceOf(text)));
      [...shown].filter(([key]) => !next.has(key)).forEach(([, one]) => one.remove());
      arrange(node, [...next.values()]);
      if (fresh.length || !problems.length) {
        setText(announcer, fresh.map(sentenceOf).join(" "));
      }
      shown = next;
    },
  };
}

/** A problem whose time or count runs on stays the same. */
function identity(text) {
  return text.replace(/(?<!\S)\d+(?!\S)/g, "");
}

function problemNode(text) {
  const [pattern, target] = PAGES.find(([known]) => known.test(text)) ?? [];
  const [name, address] = target?.(pattern.exec(text)[1]) ?? [];
  return element("p", { class: "notice" }, element("span"), name ? [" ", element("a", { href: address }, `See ${name}`)] : null);
}

/** A problem as a sentence of its own: a link follows it. */
function sentenceOf(problem) {
  return capital(problem).replace(/[^.!?]$/, "$&.");
}

/** The last events of /v1/events, as sentences, the newest first. */
export class RecentEvents {
  #node;

  constructor(node) {
    this.#node = node;
  }

  add(name, event) {
    const text = sentence(name, event);
    if (!text) {
      return;
    }
    const line = element("p", {}, `${timeOfDay(event.at)}: ${text}`);
    this.#node.prepend(line);
    [...this.#node.children].slice(MOST_EVENTS).forEach((old) => old.remove());
  }
}

const RELOADS = {
  applied: "The configuration was reloaded.",
  unchanged: "The configuration was reloaded; its text is the same.",
  failed: "A reload failed: the configuration before it runs.",
};

/** Null for refusals: charts show how many there are. */
function sentence(name, event) {
  switch (name) {
    case "reload":
      return RELOADS[event.result];
    case "ban":
      return `${event.policy} banned ${event.key_id ?? "a client"} until ${instant(event.until)}.`;
    case "ejection":
      return `Upstream ${event.upstream}: ${event.address} ${hostWords(event.state, event.reason)}.`;
    case "change":
      return event.dry_run ? null : `${event.actor}: ${event.action} of ${event.policy ?? `${event.upstream} ${event.endpoint}`}, ${event.result}.`;
    default:
      return null;
  }
}
