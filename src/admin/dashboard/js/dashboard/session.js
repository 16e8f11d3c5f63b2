// The token of the person at the browser, and requests that carry it. The token is in the tab's
// session storage: closing the tab forgets it, and no other site is ever sent it.

import { get, post, Problem, stream } from "../api.js";

const KEY = "token";
/** The time until a stream that has ended is opened again, in milliseconds. */
const PAUSE = 2_000;

export class Session {
  #ended;

  /** `ended` is called when the server no longer accepts the token. */
  constructor(ended) {
    this.#ended = ended;
  }

  get token() {
    return sessionStorage.getItem(KEY);
  }

  /** Keeps a token that the server accepts; throws the problem otherwise. */
  async begin(token) {
    await get("/v1/status", token);
    sessionStorage.setItem(KEY, token);
  }

  end() {
    sessionStorage.removeItem(KEY);
  }

  get(path) {
    return this.#watch(get(path, this.token));
  }

  post(path, body) {
    return this.#watch(post(path, body, this.token));
  }

  /**
   * Reads a stream, and opens it again whenever it ends; `failed` is told why. Returns a function
   * that ends that.
   */
  follow(path, listener, failed) {
    const ended = new AbortController();
    const step = async () => {
      try {
        await this.#watch(stream(path, this.token, ended.signal, listener));
      } catch (problem) {
        if (!ended.signal.aborted) {
          failed(problem instanceof Problem ? problem : new Problem(0, "The server does not answer."));
        }
      }
      if (!ended.signal.aborted) {
        timer = setTimeout(step, PAUSE);
      }
    };
    let timer = null;
    step();
    return () => {
      ended.abort();
      clearTimeout(timer);
    };
  }

  async #watch(answer) {
    try {
      return await answer;
    } catch (problem) {
      if (problem.status === 401) {
        this.end();
        this.#ended("The server does not accept the token any more.");
      }
      throw problem;
    }
  }
}
