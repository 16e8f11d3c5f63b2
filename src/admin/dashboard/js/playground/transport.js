// Time on the page: plays, and lets streams of requests arrive meanwhile.

import { DURATION } from "./arrivals.js";

/** Frames further apart than this, as of a page in the background, pass only so much time. */
const LONGEST_FRAME = 250;

export class Transport {
  #model;
  #last = null;
  /** The time between requests of the stream, and the instant of the next; null without one. */
  #gap = null;
  #next = 0;

  constructor(model) {
    this.#model = model;
    model.listen(() => this.#start());
  }

  /** Lets requests arrive evenly, so many a second of the page's time; null ends that. */
  stream(rate) {
    this.#gap = rate ? Math.max(1, Math.round(1_000 / rate)) : null;
    this.#next = Math.round(this.#model.playhead);
    if (rate) {
      this.#model.play(true);
    }
  }

  #start() {
    if (this.#model.isPlaying && this.#last === null) {
      this.#last = performance.now();
      requestAnimationFrame((now) => this.#frame(now));
    }
  }

  #frame(now) {
    const model = this.#model;
    if (!model.isPlaying) {
      this.#last = null;
      return;
    }
    const passed = Math.min(LONGEST_FRAME, Math.max(0, now - this.#last)) * model.speed;
    this.#last = now;
    model.seek(model.playhead + passed);
    this.#arrive();
    requestAnimationFrame((later) => this.#frame(later));
  }

  #arrive() {
    const { playhead } = this.#model;
    if (this.#gap === null || this.#next > playhead) {
      return;
    }
    const times = [];
    for (; this.#next <= playhead; this.#next += this.#gap) {
      times.push(this.#next);
    }
    this.#model.send(times, { lasts: DURATION });
  }
}
