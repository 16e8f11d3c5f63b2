// Figures of the running process: asked once a second, kept for five minutes, told to all pages.

import { History } from "./history.js";
import { Latency } from "./latency.js";

const PERIOD = 1_000;
/** Metrics are larger than the rest. */
const METRICS_PERIOD = 5_000;

export class Figures {
  status = null;
  policies = [];
  /** The last problem; null while the server answers. */
  problem = null;
  history = new History();
  latency = new Latency();

  #session;
  #listeners = new Set();
  #watchers = [];
  #timers = [];
  #busy = false;

  constructor(session) {
    this.#session = session;
  }

  /** Calls `listener` after each question, answered or not. */
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
    this.stop();
    this.#timers = [
      setInterval(() => this.#ask(), PERIOD),
      setInterval(() => this.#askMetrics(), METRICS_PERIOD),
    ];
    this.#ask();
    this.#askMetrics();
  }

  stop() {
    this.#timers.forEach(clearInterval);
    this.#timers = [];
  }

  async #ask() {
    // A tab that nobody sees asks nothing; an answer that is late delays the next question.
    if (this.#busy || document.hidden) {
      return;
    }
    this.#busy = true;
    try {
      const [status, { policies }] = await Promise.all([this.#session.get("/v1/status"), this.#session.get("/v1/policies")]);
      Object.assign(this, { status, policies, problem: null });
      this.history.add(performance.now(), policies);
    } catch (problem) {
      this.problem = problem;
    }
    this.#busy = false;
    if (this.#timers.length) {
      this.#watchers.forEach((watcher) => watcher(this));
    }
    if (this.#timers.length && this.status) {
      this.#listeners.forEach((listener) => listener(this));
    }
  }

  async #askMetrics() {
    if (!document.hidden) {
      await this.latency.ask();
    }
  }
}
