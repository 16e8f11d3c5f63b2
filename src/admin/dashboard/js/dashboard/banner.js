// Above every page: what an operator has to look at now, and what has happened last. Events have a
// place of their own height, so that they do not move the page.

import { arrange, element, setText } from "../dom.js";
import { capital, instant, timeOfDay } from "../format.js";
import { hostWords } from "./host_words.js";
import { bucketsText } from "./parts.js";
import { href } from "./router.js";

const MOST_EVENTS = 50;

/** The page where a problem or a note is looked into, by the begin of its sentence. */
const PAGES = [
  [/a grant by an operator$/, () => ["the bans and grants", href("bans")]],
  [/^the last reload/, () => ["the configuration", href("configuration")]],
  [/^upstream/, () => ["the upstreams", href("upstreams")]],
  [/^policy (\S+?):? /, (name) => [`policy ${name}`, href("policies", name)]],
  [/^redis/, () => ["the policies", href("policies")]],
];

/** A banner: `show` replaces its problems or notes. A new one is read out if there is an announcer. */
export function createBanner(node, announcer) {
  let shown = new Map();
  return {
    show(problems) {
      const next = new Map(problems.map((text) => [identity(text), shown.get(identity(text)) ?? problemNode(text)]));
      const fresh = problems.filter((text) => !shown.has(identity(text)));
      problems.forEach((text) => setText(next.get(identity(text)).firstChild, sentenceOf(text)));
      [...shown].filter(([key]) => !next.has(key)).forEach(([, one]) => one.remove());
      arrange(node, [...next.values()]);
      if (announcer && (fresh.length || !problems.length)) {
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
  #shown = [];

  constructor(node) {
    this.#node = node;
  }

  /** Adds an event. A stream that is opened again repeats those of the last hour. */
  add(name, event) {
    const [text, id] = [sentence(name, event), JSON.stringify([name, event])];
    if (!text || this.#shown.some((one) => one.id === id)) {
      return;
    }
    const at = Date.parse(event.at);
    this.#shown.push({ id, at, line: element("p", {}, `${timeOfDay(event.at)}: ${text}`) });
    this.#shown.sort((left, right) => right.at - left.at);
    this.#shown.splice(MOST_EVENTS).forEach(({ line }) => line.remove());
    arrange(this.#node, this.#shown.map(({ line }) => line));
  }
}

function reloadSentence({ result, error, buckets, warnings }) {
  if (result === "failed") {
    const place = /--> (\S+)/.exec(error)?.[1];
    const [first] = error.replace(/^error\[[^\]]*\]: /, "").split("\n");
    return `A reload failed, and the configuration before it runs: ${place ? `${place}: ` : ""}${first}.`;
  }
  const changes = buckets.filter(({ outcome }) => outcome !== "new").map(bucketsText);
  const parts = [
    result === "unchanged" ? "The configuration was reloaded; its text is the same." : "The configuration was reloaded.",
    changes.length && `Buckets: ${changes.join(", ")}.`,
    warnings.length && `Warnings: ${warnings.join("; ")}.`,
  ];
  return parts.filter(Boolean).join(" ");
}

/** Null for refusals: charts show how many there are. */
function sentence(name, event) {
  switch (name) {
    case "reload":
      return reloadSentence(event);
    case "ban":
      return `${event.policy} banned ${event.key_id ?? "a client"} until ${instant(event.until)}.`;
    case "ejection":
      return `Upstream ${event.upstream}: ${event.address} ${hostWords(event.state, event.reason)}.`;
    case "change":
      return changeSentence(event);
    default:
      return null;
  }
}

/** Null for one that was only tried, or that the server rejected before it knew what would change. */
function changeSentence({ actor, action, policy, upstream, endpoint, result, dry_run: isDry }) {
  const target = policy ?? (upstream && `${upstream} ${endpoint}`);
  return isDry || !target ? null : `${actor}: ${action} of ${target}, ${result}.`;
}
