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
  #listeners = new Set();
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
  listen(listener) {
    this.#listeners.add(listener);
    if (this.status) {
      listener(this);
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
      const [status, { policies }, text] = await Promise.all([session.get("/v1/status"), session.get("/v1/policies"), events]);
      eventsOf(text).forEach(([name, event]) => this.events.add(name, event));
      Object.assign(this, { status, policies, problem: null, answeredAt: new Date() });
    } catch (problem) {
      this.problem = problem;
    }
    this.#tell();
  }

  #tell() {
    if (!this.#end) {
      return;
    }
    this.#watchers.forEach((watcher) => watcher(this));
    if (this.status) {
      this.#listeners.forEach((listener) => listener(this));
    }
  }
}
