// The token of the person at the browser, and requests that carry it. The token is in the tab's
// session storage: closing the tab forgets it, and no other site is ever sent it.

import { get, post } from "../api.js";

const KEY = "token";

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
