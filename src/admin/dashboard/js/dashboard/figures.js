// Figures of the running process, which all pages read: settings, counts and rates, asked for again and
// again, and events, read from a stream.

import { EventLog } from "./events.js";

const PERIOD = 2_500;
/** Events, from those of the last hour on. */
const EVENTS = "/v1/events?past=3600";

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
  #ends = [];
  #isStarted = false;

  constructor(session) {
    this.#session = session;
    document.addEventListener("visibilitychange", () => this.#isStarted && this.#resume());
  }

  /** Calls `listener` after each answer and event, and after each problem. */
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
    this.#isStarted = true;
    this.#resume();
  }

  stop() {
    this.#isStarted = false;
    this.#pause();
  }

  /** Asks for settings and counts now. */
  async refresh() {
    try {
      const [status, { policies }] = await Promise.all([this.#session.get("/v1/status"), this.#session.get("/v1/policies")]);
      Object.assign(this, { status, policies, problem: null, answeredAt: new Date() });
    } catch (problem) {
      this.problem = problem;
    }
    this.#tell();
  }

  #pause() {
    this.#ends.forEach((end) => end());
    this.#ends = [];
  }

  /** A tab that nobody sees reads nothing. */
  #resume() {
    this.#pause();
    if (document.hidden) {
      return;
    }
    const add = (name, event) => {
      this.events.add(name, event);
      this.#tell();
    };
    const failed = (problem) => {
      // All streams are taken: this page goes on without events.
      if (problem.status !== 503) {
        this.problem = problem;
        this.#tell();
      }
    };
    const timer = setInterval(() => this.refresh(), PERIOD);
    this.#ends = [() => clearInterval(timer), this.#session.follow(EVENTS, add, failed)];
    this.refresh();
  }

  #tell() {
    if (!this.#isStarted) {
      return;
    }
    this.#watchers.forEach((watcher) => watcher(this));
    if (this.status) {
      this.#listeners.forEach((listener) => listener(this));
    }
  }
}
