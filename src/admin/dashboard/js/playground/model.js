// The state of the page, the changes that it can undergo, and the decisions of the server on it.

import { countOf, MOST_ARRIVALS, withArrival } from "./arrivals.js";

/** Before all instants. */
const NEVER = -1;

export class Model {
  policies = [];
  /** Requests, as entries of the API. */
  arrivals = [];
  /** The server's answer about each policy: its name, quota, new cell and decisions. */
  lanes = [];
  /** The shown instant and the latest one, in milliseconds. */
  playhead = 0;
  end = 0;
  isPlaying = false;
  speed = 1;
  client = "a";
  problem = null;
  /** True while the server is asked: the lanes show its decisions on an earlier state. */
  isAsking = false;

  #listeners = [];
  #post;
  /** The lanes have, or the server was asked for, all decisions until this instant. */
  #decided = Infinity;
  #hasChanged = false;
  /** The time between requests of the stream, and the instant of the next; null without one. */
  #gap = null;
  #next = 0;

  /** `post` sends a body to a path of the API. */
  constructor(post) {
    this.#post = post;
  }

  /** Calls `listener` after each change. */
  listen(listener) {
    this.#listeners.push(listener);
  }

  #tell() {
    this.#listeners.forEach((listener) => listener());
  }

  /** Replaces parts of the state. Without time, a stream ends. */
  set(state) {
    Object.assign(this, state);
    if (!this.isPlaying) {
      this.#gap = null;
    }
    if (state.policies || state.arrivals) {
      this.#decide(NEVER);
    }
    this.#tell();
  }

  get isFull() {
    return countOf(this.arrivals) >= MOST_ARRIVALS;
  }

  get isStreaming() {
    return this.#gap !== null;
  }

  /** Adds requests at these instants, the earliest first, until there are as many as a page keeps. */
  send(times) {
    const added = times.slice(0, Math.max(0, MOST_ARRIVALS - countOf(this.arrivals))).map(Math.round);
    if (added.length) {
      this.arrivals = added.reduce((entries, at) => withArrival(entries, at, this.client), this.arrivals);
      this.end = Math.max(this.end, added.at(-1));
      this.#decide(added[0]);
      this.#tell();
    }
  }

  /** Begins a stream of requests with this rate per second of the page's time; null ends it. */
  stream(rate) {
    this.#gap = rate && Math.max(1, Math.round(1_000 / rate));
    this.#next = Math.round(this.playhead);
    this.set({ isPlaying: this.isPlaying || rate !== null });
  }

  /** Shows another instant. */
  seek(playhead) {
    this.playhead = Math.max(0, playhead);
    this.end = Math.max(this.end, this.playhead);
    this.#tell();
  }

  /** Lets time pass, and the stream's requests arrive meanwhile. */
  pass(ms) {
    const begin = Math.round(this.playhead);
    this.seek(this.playhead + ms);
    const times = [];
    // Where somebody has moved the playhead to, the stream continues.
    this.#next = Math.min(Math.max(this.#next, begin), begin + this.#gap);
    for (; this.isStreaming && this.#next <= this.playhead; this.#next += this.#gap) {
      times.push(this.#next);
    }
    this.send(times);
  }

  /** Has the server decide about what comes after an instant: one question at a time. */
  async #decide(since) {
    this.#decided = Math.min(this.#decided, since);
    this.#hasChanged = true;
    if (this.isAsking) {
      return;
    }
    this.isAsking = true;
    while (this.#hasChanged) {
      await this.#ask();
      this.isAsking = this.#hasChanged;
      this.#tell();
    }
  }

  async #ask() {
    const { policies, arrivals } = this;
    const decided = this.#decided;
    const known = this.lanes.map((lane) => lane.decisions.filter(({ at_ms: at }) => at <= decided));
    this.#decided = Infinity;
    this.#hasChanged = false;
    const question = this.#post("/v1/playground", { policies, arrivals, from: known[0]?.length ?? 0 });
    const [answer, problem] = await question.then((found) => [found, null], (error) => [null, error]);
    if (this.#decided === NEVER) {
      // Policies or arrivals have been replaced meanwhile: nobody sees any more what this answers.
      return;
    }
    this.problem = problem;
    if (problem) {
      this.#decided = Math.min(this.#decided, decided);
    } else {
      this.lanes = answer.policies.map((policy, place) => {
        return { ...policy, decisions: [...(known[place] ?? []), ...policy.decisions] };
      });
    }
  }
}
