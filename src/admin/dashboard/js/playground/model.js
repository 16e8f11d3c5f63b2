// The state of the page and the changes that it can undergo. Views hear of each change by its kind:
// `policies`, `decisions`, `time` or `controls`.

import { insert, MOST_ARRIVALS } from "./arrivals.js";
import { Decider } from "./decider.js";

export class Model {
  policies = [];
  arrivals = [];
  /** Of each policy: its name, algorithm, capacity, new cell and decisions. */
  lanes = [];
  /** The shown instant and the latest one, in milliseconds. */
  playhead = 0;
  end = 0;
  isPlaying = false;
  speed = 1;
  client = "a";
  cost = 1;
  problem = null;

  #listeners = [];
  #decider;

  constructor(post) {
    this.#decider = new Decider(
      (body) => post("/v1/playground", body),
      () => this,
      (problem, answer) => this.#hear(problem, answer),
    );
  }

  /** Calls `listener` with the kind of each change. */
  listen(listener) {
    this.#listeners.push(listener);
  }

  #tell(kind) {
    this.#listeners.forEach((listener) => listener(kind));
  }

  #hear(problem, answer) {
    this.problem = problem;
    if (answer) {
      const known = answer.from > 0 ? this.lanes : [];
      // The server answers in the order of the request.
      this.lanes = answer.policies.map((policy, place) => ({
        ...policy,
        decisions: [...(known[place]?.decisions.slice(0, answer.from) ?? []), ...policy.decisions],
      }));
    }
    this.#tell("decisions");
  }

  /** Replaces the whole state. */
  load({ policies, arrivals, playhead, end }) {
    Object.assign(this, { policies, arrivals, playhead, end, isPlaying: false, lanes: [] });
    this.#tell("policies");
    this.#decider.ask(0);
  }

  setPolicies(policies) {
    this.policies = policies;
    this.#tell("policies");
    this.#decider.ask(0);
  }

  /** Changes the settings of one policy, without rebuilding its controls. */
  setPolicy(place, policy) {
    this.policies = this.policies.map((one, number) => (number === place ? policy : one));
    this.#tell("controls");
    this.#decider.ask(0);
  }

  setArrivals({ arrivals, playhead, end }) {
    Object.assign(this, { arrivals, playhead, end, isPlaying: false });
    this.#tell("time");
    this.#decider.ask(0);
  }

  get isFull() {
    return this.arrivals.length >= MOST_ARRIVALS;
  }

  /** Adds requests at these instants, as far as there is room. */
  send(times, { key = this.client, cost = this.cost, lasts }) {
    let from = this.arrivals.length;
    for (const at of times) {
      if (!this.isFull) {
        from = Math.min(from, insert(this.arrivals, { at: Math.round(at), key, cost, lasts }));
      }
    }
    this.end = Math.max(this.end, this.playhead, this.arrivals.at(-1)?.at ?? 0);
    this.#tell("time");
    this.#decider.ask(from);
  }

  /** Shows another instant. */
  seek(playhead) {
    this.playhead = Math.max(0, playhead);
    this.end = Math.max(this.end, this.playhead);
    this.#tell("time");
  }

  play(isPlaying) {
    this.isPlaying = isPlaying;
    this.#tell("controls");
  }

  /** Sets the speed, the client or the cost. */
  set(controls) {
    Object.assign(this, controls);
    this.#tell("controls");
  }
}
