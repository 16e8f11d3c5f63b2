// What has happened in the last hour, as sentences.

import { arrange, element } from "../dom.js";
import { moment, number, timeOfDay } from "../format.js";
import { sentences } from "./banner.js";
import { ownerText } from "./pages/client_text.js";
import { bucketsText } from "./parts.js";

const KEPT = 3_600_000;
/** The most events that are kept, and that the line above pages shows. */
const MOST = 2_000;
const MOST_SHOWN = 50;

/** The events of /v1/events, the newest first. */
export class EventLog {
  #events = [];

  /** Adds an event. A stream that is opened again repeats those of the last hour. */
  add(name, event) {
    const [text, id] = [sentence(name, event), JSON.stringify([name, event])];
    if (!text || this.#events.some((one) => one.id === id)) {
      return;
    }
    const at = Date.parse(event.at);
    const place = this.#events.findIndex((one) => one.at <= at);
    this.#events.splice(place < 0 ? this.#events.length : place, 0, { id, at, name, event, text });
    this.#events.splice(MOST);
  }

  get all() {
    return this.#events;
  }

  /** What has changed a policy, the newest first: `{ at, text, override }`, of one override if it is named. */
  changesOf(policy) {
    const texts = ({ name, event: { buckets = [], action, policy: changed, result, actor } }) => {
      const ofPolicy = buckets.filter((one) => one.policy === policy && one.outcome !== "new");
      const isMode = action === "mode" && changed === policy;
      return name === "reload" ? ofPolicy.map(({ override, outcome, reason }) => [`${reason ?? outcome} by the reload`, override]) : isMode ? [[`mode ${result} by ${actor}`]] : [];
    };
    return this.#events.flatMap((one) => texts(one).map(([text, override = null]) => ({ at: one.at, text, override })));
  }

  /** What reloads have changed of policies, as sentences, the newest first. */
  get reloadNotes() {
    const reloads = this.#events.filter(({ name }) => name === "reload");
    const policies = new Set(reloads.flatMap(({ event }) => event.buckets.filter(({ reason }) => reason !== null).map(({ policy }) => policy)));
    return [...policies].flatMap((policy) => this.changesOf(policy).filter(({ text }) => text.endsWith("by the reload")).map((change) => ({ kind: "reload", labels: { policy }, text: `policy ${policy}: ${changeText(change)}` })));
  }

  /** Marks for a chart: `{ at, text, isMinor }`, of a policy's events, problems and reloads only if one is named. */
  marks(policy = null) {
    const ofPolicy = this.#events.filter(({ at, name, event }) => at > Date.now() - KEPT && (policy === null || ["problem", "reload", "upgrade"].includes(name) || event.policy === policy));
    return ofPolicy.map(({ at, name, text }) => ({ at, text: `${timeOfDay(at)}: ${text}`, isMinor: name === "ban" }));
  }
}

/** A change of a policy, with its override and its time. */
export function changeText({ at, text, override }) {
  return `${text}${override === null ? "" : `, ${override},`} at ${timeOfDay(at)}`;
}

/** The newest ban of each policy for all of its bans, which would hide what else happened. */
function withoutManyBans(all) {
  const bans = Map.groupBy(all.filter(({ name }) => name === "ban"), ({ event }) => event.policy);
  return all.flatMap((one) => {
    const [newest, ...others] = bans.get(one.event.policy) ?? [];
    if (one.name !== "ban" || others.length === 0) {
      return [one];
    }
    const text = `${one.text.slice(0, -1)}, and ${number(others.length)} more before, in the last hour.`;
    return one === newest ? [{ ...one, id: one.id + others.length, text }] : [];
  });
}

/** The line of the last events above every page. */
export function eventLine(node) {
  const lines = new Map();
  return {
    show(events) {
      const last = withoutManyBans(events.all).slice(0, MOST_SHOWN);
      const known = new Set(last.map(({ id }) => id));
      [...lines].filter(([id]) => !known.has(id)).forEach(([id, line]) => {
        line.remove();
        lines.delete(id);
      });
      last.filter(({ id }) => !lines.has(id)).forEach(({ id, at, text }) => lines.set(id, element("p", {}, `${timeOfDay(at)}: ${text}`)));
      arrange(node, last.map(({ id }) => lines.get(id)));
    },
  };
}

function reloadSentence({ result, cause, buckets, warnings }) {
  if (result === "failed") {
    return `A reload failed, and the configuration before it runs: ${cause}.`;
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
      return `${event.policy} banned ${ownerText(event)} until ${moment(event.until)}.`;
    case "ejection":
      return `Upstream ${event.upstream}: ${event.address} is ${event.text}.`;
    case "problem":
      return `${event.is_over ? "Over: " : ""}${sentences([event])}`;
    case "upgrade":
      return `Version ${event.version} took over from another process.`;
    case "change":
      return changeSentence(event);
    default:
      return null;
  }
}

/** Null for one that was only tried, or that the server rejected before it knew what would change. */
function changeSentence(event) {
  const { actor, action, policy, upstream, endpoint, units, result, client, address, dry_run: isDry } = event;
  const whose = client ?? address ? ` for ${ownerText(event)}` : "";
  const target = policy ? policy + whose : upstream && `${upstream} ${endpoint}`;
  const what = action !== "grant" ? action : units === 0 ? "end of the grant" : `grant of ${number(units)} units`;
  return isDry || !target ? null : `${actor}: ${what} of ${target}, ${result}.`;
}
