// Figures of the running process: a stream of /v1/live, and what has happened, told to all pages.
// Settings and counts since the start change slowly, and are asked for. If other pages have taken all
// streams, rates come from these counts.

import { EventLog } from "./events.js";
import { History } from "./history.js";

const PERIOD = 3_500;
/** Events, from those of the last hour on. */
const EVENTS = "/v1/events?past=3600";

export class Figures {
  status = null;
  policies = [];
  /** The last message of the stream; null before the first. */
  live = null;
  /** The last problem; null while the server answers. */
  problem = null;
  /** The instant of the last answer or message. */
  answeredAt = null;
  history = new History();
  events = new EventLog();

  #session;
  #listeners = new Set();
  #watchers = [];
  #ends = [];
  #isStarted = false;
  #hasStream = true;

  constructor(session) {
    this.#session = session;
    document.addEventListener("visibilitychange", () => this.#isStarted && this.#resume());
  }

  /** Calls `listener` after each answer and message, and after each problem. */
  watch(listener) {
    this.#watchers.push(listener);
  }

  /** Calls `listener` with the figures now and after each message; returns a function that ends that. */
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
      this.history.addCounts(performance.now(), policies, !this.#hasStream);
      Object.assign(this, { status, policies });
      this.#answered();
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
    const failed = (problem) => {
      if (problem.status === 503) {
        this.#hasStream = false;
        return;
      }
      this.problem = problem;
      this.#tell();
    };
    const timer = setInterval(() => this.refresh(), PERIOD);
    this.#ends = [
      () => clearInterval(timer),
      this.#session.follow("/v1/live", (name, live) => this.#take(live), failed),
      this.#session.follow(EVENTS, (name, event) => this.#add(name, event), failed),
    ];
    this.refresh();
  }

  #take(live) {
    this.live = live;
    this.#hasStream = true;
    this.#answered();
    this.history.add(performance.now(), live);
    this.#tell();
  }

  #add(name, event) {
    this.events.add(name, event);
    this.#tell();
  }

  #answered() {
    this.problem = null;
    this.answeredAt = new Date();
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
