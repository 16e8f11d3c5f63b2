// Figures of the running process, which all pages read, asked for again and again: settings, counts,
// rates and events. No stream is held, so that any number of tabs can look.

import { eventsOf } from "../api.js";
import { EventLog } from "./events.js";
import { repeat } from "./parts.js";

const PERIOD = 2_500;
/** Events are asked for from so long before the last answer on, and at first for the last hour, in seconds. */
const [OVERLAP, HOUR] = [10, 3_600];

export class Figures {
  status = null;
  policies = [];
  /** The last problem; null while the server answers. */
  problem = null;
  /** The instant of the last answer. */
  answeredAt = null;
  events = new EventLog();

  #session;
  /** Whether each listener reads policies: of many they are long, and only its page asks for them. */
  #listeners = new Map();
  #arePoliciesKnown = false;
  #watchers = [];
  #end = null;

  constructor(session) {
    this.#session = session;
  }

  /** Calls `listener` after each answer, and after each problem. */
  watch(listener) {
    this.#watchers.push(listener);
  }

  /** Calls `listener` with the figures now and after each answer; returns a function that ends that. */
  listen(listener, readsPolicies = true) {
    this.#listeners.set(listener, readsPolicies);
    this.#tell([[listener, readsPolicies]]);
    if (readsPolicies) {
      this.#end?.again();
    }
    return () => this.#listeners.delete(listener);
  }

  start() {
    this.#end = repeat(() => this.refresh(), PERIOD);
  }

  stop() {
    this.#end?.();
    this.#end = null;
  }

  /** Asks now. */
  async refresh() {
    const session = this.#session;
    const passed = this.answeredAt ? (Date.now() - this.answeredAt) / 1_000 + OVERLAP : HOUR;
    try {
      const events = session.get(`/v1/events?seconds=0&past=${Math.ceil(Math.min(passed, HOUR))}`);
      const asked = [...this.#listeners.values()].some(Boolean) && session.get("/v1/policies");
      const [status, answer, text] = await Promise.all([session.get("/v1/status"), asked, events]);
      eventsOf(text).forEach(([name, event]) => this.events.add(name, event));
      Object.assign(this, { status, problem: null, answeredAt: new Date() });
      if (answer) {
        this.policies = answer.policies;
        this.#arePoliciesKnown = true;
      }
    } catch (problem) {
      this.problem = problem;
    }
    if (this.#end) {
      this.#watchers.forEach((watcher) => watcher(this));
      this.#tell(this.#listeners);
    }
  }

  #tell(listeners) {
    for (const [listener, readsPolicies] of this.status ? listeners : []) {
      if (this.#arePoliciesKnown || !readsPolicies) {
        listener(this);
      }
    }
  }
}
