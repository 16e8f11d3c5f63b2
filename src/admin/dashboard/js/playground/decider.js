// Asks the server for decisions: one request at a time, and only for arrivals that changed.

import { compact } from "./arrivals.js";

export class Decider {
  #post;
  #read;
  #answered;
  #from = Infinity;
  #busy = false;

  /**
   * `post` sends a body to the server. `read` gives the policies and arrivals of the moment.
   * `answered` hears `(null, answer)`, or the problem.
   */
  constructor(post, read, answered) {
    this.#post = post;
    this.#read = read;
    this.#answered = answered;
  }

  /** Has the arrivals from this one on decided; 0 for all, as after a change of the policies. */
  ask(from) {
    this.#from = Math.min(this.#from, from);
    if (!this.#busy) {
      this.#next();
    }
  }

  async #next() {
    this.#busy = true;
    while (this.#from !== Infinity) {
      const { policies, arrivals } = this.#read();
      const from = Math.min(this.#from, arrivals.length);
      this.#from = Infinity;
      try {
        const answer = await this.#post({ policies, arrivals: compact(arrivals), from });
        this.#answered(null, answer);
      } catch (problem) {
        // Nothing of the lanes is valid any more: the next answer has to be whole.
        this.#answered(problem, null);
      }
    }
    this.#busy = false;
  }
}
