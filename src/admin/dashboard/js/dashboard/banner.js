// The banner above every page: what an operator has to look at now, and what has just happened.

import { element } from "../dom.js";

/** How long an event is shown, in milliseconds. */
const SPAN = 20_000;
const MOST_EVENTS = 5;

let shown = "";

/** Shows these problems and events; nothing for none. */
export function showBanner(banner, problems, events) {
  const text = JSON.stringify([problems, events]);
  if (text === shown) {
    return;
  }
  shown = text;
  const lines = (all, name) => all.map((line) => element("p", { class: name }, line));
  banner.replaceChildren(...lines(problems, "notice"), ...lines(events, "event small"));
}

/** The last events of /v1/events, as sentences. */
export class RecentEvents {
  #events = [];

  add(name, event) {
    const text = sentence(name, event);
    if (text) {
      this.#events = [{ text, at: performance.now() }, ...this.#events].slice(0, MOST_EVENTS);
    }
  }

  texts() {
    const since = performance.now() - SPAN;
    this.#events = this.#events.filter(({ at }) => at > since);
    return this.#events.map(({ text }) => text);
  }
}

/** Null for refusals: charts show how many there are. */
function sentence(name, event) {
  switch (name) {
    case "reload":
      return `The configuration was reloaded: ${event.result}.`;
    case "ban":
      return `${event.policy} banned ${event.key_id ?? "a client"} until ${event.until}.`;
    case "ejection":
      return `Upstream ${event.upstream}: ${event.address} is ${event.state}${event.reason ? ` (${event.reason})` : ""}.`;
    case "change":
      return event.dry_run ? null : `${event.actor}: ${event.action} of ${event.policy ?? `${event.upstream} ${event.endpoint}`}, ${event.result}.`;
    default:
      return null;
  }
}
