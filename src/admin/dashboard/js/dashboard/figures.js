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
  /** Null until a page reads them: of many policies they are long, and not asked for otherwise. */
  policies = null;
  /** The last problem; null while the server answers. */
  problem = null;
  /** The instant of the last answer. */
  answeredAt = null;
  events = new EventLog();

  #session;
  #watcher;
  /** Whether each listener reads policies. */
  #listeners = new Map();
  #end = null;

  /** `watcher` is called after each answer, and after each problem. */
  constructor(session, watcher) {
    this.#session = session;
    this.#watcher = watcher;
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
    const [session, askedAt] = [this.#session, new Date()];
    const passed = this.answeredAt ? (Date.now() - this.answeredAt) / 1_000 + OVERLAP : HOUR;
    try {
      const events = session.get(`/v1/events?seconds=0&past=${Math.ceil(Math.min(passed, HOUR))}`);
      const asked = [...this.#listeners.values()].some(Boolean) && session.get("/v1/policies");
      const [status, answer, text] = await Promise.all([session.get("/v1/status"), asked, events]);
      // By the server's clock; if that was set back since the start, by this one.
      const now = Math.min(Date.parse(status.started_at) + status.uptime_s * 1_000, Date.now());
      this.events.add(eventsOf(text), now - HOUR * 1_000);
      const policies = answer ? answer.policies : this.policies;
      Object.assign(this, { status, policies, problem: null, answeredAt: askedAt });
    } catch (problem) {
      this.problem = problem;
    }
    if (this.#end) {
      this.#watcher(this);
      this.#tell(this.#listeners);
    }
  }

  #tell(listeners) {
    for (const [listener, readsPolicies] of this.status ? listeners : []) {
      if (this.policies || !readsPolicies) {
        listener(this);
      }
    }
  }
}
