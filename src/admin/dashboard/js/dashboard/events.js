// What has happened in the last hour, as sentences.

import { arrange, element } from "../dom.js";
import { moment, number, timeOfDay } from "../format.js";
import { sentences } from "./banner.js";
import { ownerText } from "./pages/client_text.js";
import { bucketsText } from "./parts.js";

/** The most events that are kept, and that the line above pages shows. */
const [MOST, MOST_SHOWN] = [2_000, 50];

/** An event of each kind as a sentence. */
const SENTENCES = {
  reload: reloadSentence,
  ban: (event) => `${event.policy} banned ${ownerText(event)} until ${moment(event.until)}.`,
  ejection: ({ upstream, address, state, text = state }) => `Upstream ${upstream}: ${address} is ${text}.`,
  problem: (event) => `${event.is_over ? "Over: " : ""}${sentences([event])}`,
  upgrade: ({ version }) => `Version ${version} took over from another process.`,
  change: changeSentence,
};

/** The events of /v1/events. */
export class EventLog {
  /** The newest first, each `{ id, at, name, event, text }`. */
  all = [];
  /** What reloads have done to buckets: `{ at, policy, override, reason, text }`, the newest first. */
  #reloaded = [];

  /** Adds events, of which some may be known, and forgets those from before an instant. */
  add(events, since) {
    const known = new Map(this.all.map((one) => [one.id, one]));
    for (const [name, event] of events) {
      const id = JSON.stringify([name, event]);
      if (SENTENCES[name] && !known.has(id)) {
        known.set(id, { id, at: Date.parse(event.at), name, event, text: SENTENCES[name](event) });
      }
    }
    const lately = [...known.values()].filter(({ at }) => at >= since);
    this.all = lately.sort((left, right) => right.at - left.at).slice(0, MOST);
    const reloads = this.all.filter(({ name }) => name === "reload");
    const changes = reloads.flatMap(({ at, event }) => event.buckets.map((change) => ({ override: null, ...change, at })));
    const changed = changes.filter(({ outcome }) => outcome !== "new");
    this.#reloaded = changed.map((change) => ({ ...change, text: `${change.reason ?? change.outcome} by the reload` }));
  }

  /** What has changed a policy, the newest first: `{ at, text, override }`, of one override if it is named. */
  changesOf(policy) {
    const modes = this.all.filter(({ event }) => event.action === "mode" && event.policy === policy);
    const set = modes.map(({ at, event: { result, actor } }) => ({ at, override: null, text: `mode ${result} by ${actor}` }));
    const reloaded = this.#reloaded.filter((change) => change.policy === policy);
    return [...reloaded, ...set].sort((left, right) => right.at - left.at);
  }

  /** What reloads have changed of policies, as notes, the newest first. */
  get reloadNotes() {
    const changed = this.#reloaded.filter(({ reason }) => reason !== null);
    return changed.map(({ policy, ...change }) => {
      return { kind: "reload", labels: { policy }, text: `policy ${policy}: ${changeText(change)}` };
    });
  }

  /**
   * Marks for a chart, the oldest first: `{ at, text, isMinor }`. If a policy is named, only of its events
   * and of the whole proxy's.
   */
  marks(policy) {
    const isOfAll = (name) => policy === null || ["problem", "reload", "upgrade"].includes(name);
    const wanted = this.all.filter(({ name, event }) => isOfAll(name) || event.policy === policy).reverse();
    return wanted.map(({ at, name, text }) => ({ at, text: `${timeOfDay(at)}: ${text}`, isMinor: name === "ban" }));
  }
}

/** A change of a policy, with its override and its time. */
export function changeText({ at, text, override }) {
  return `${text}${override === null ? "" : `, ${override},`} at ${timeOfDay(at)}`;
}

/** One line for the bans of a policy, which would hide what else happened. */
function withoutManyBans(all) {
  const lines = Map.groupBy(all, ({ id, name, event }) => (name === "ban" ? event.policy : id));
  return Array.from(lines.values(), ([newest, ...others]) => {
    const text = `${newest.text.slice(0, -1)}, and ${number(others.length)} more before, in the last hour.`;
    return others.length ? { ...newest, id: newest.id + others.length, text } : newest;
  });
}

/** The line of the last events above every page. Returns a function that shows events. */
export function eventLine(node) {
  let lines = new Map();
  return (all) => {
    const last = withoutManyBans(all).slice(0, MOST_SHOWN);
    const line = ({ at, text }) => element("p", {}, `${timeOfDay(at)}: ${text}`);
    lines = new Map(last.map((event) => [event.id, lines.get(event.id) ?? line(event)]));
    arrange(node, [...lines.values()]);
  };
}

function reloadSentence({ result, cause, buckets, warnings }) {
  if (result === "failed") {
    return `A reload failed, and the configuration before it runs: ${cause ?? "see Configuration"}.`;
  }
  const changes = buckets.filter(({ outcome }) => outcome !== "new").map(bucketsText);
  const parts = [
    result === "unchanged" ? "The configuration was reloaded; its text is the same." : "The configuration was reloaded.",
    changes.length && `Buckets: ${changes.join(", ")}.`,
    warnings.length && `Warnings: ${warnings.join("; ")}.`,
  ];
  return parts.filter(Boolean).join(" ");
}

function changeSentence(event) {
  const { actor, action, policy, upstream, endpoint, units, result, client, address } = event;
  const whose = client ?? address ? ` for ${ownerText(event)}` : "";
  const what = action !== "grant" ? action : units === 0 ? "end of the grant" : `grant of ${number(units)} units`;
  return `${actor}: ${what} of ${policy ?? `${upstream} ${endpoint}`}${whose}, ${result}.`;
}
