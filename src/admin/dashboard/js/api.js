// Requests to the API. A problem (RFC 9457) is thrown, with its detail as the message.

class Problem extends Error {
  constructor(status, detail, findings = []) {
    super(detail);
    this.status = status;
    this.findings = findings;
  }
}

/** The answer to a GET. */
export function get(path, token = null) {
  return call(path, { headers: headers(token) });
}

/** The answer to a POST of JSON. */
export function post(path, body, token = null) {
  const fields = { ...headers(token), "content-type": "application/json" };
  return call(path, { method: "POST", headers: fields, body: JSON.stringify(body) });
}

/** The most often that a busy server is asked, and the pause between, in milliseconds. */
const TRIES = 3;
const PAUSE = 1_000;

/** The answer to a POST that changes nothing: a busy server is asked again. */
export async function compute(path, body, token = null, tries = TRIES) {
  try {
    return await post(path, body, token);
  } catch (problem) {
    if (problem.status !== 503 || tries === 1) {
      throw problem;
    }
    await new Promise((done) => setTimeout(done, PAUSE));
    return compute(path, body, token, tries - 1);
  }
}

/** The events in the text of a stream, as pairs of name and data. */
export function eventsOf(text) {
  return Array.from(text.matchAll(/^event: (.*)\ndata: (.*)$/gm), ([, name, data]) => [name, JSON.parse(data)]);
}

function headers(token) {
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** The longest time for a whole answer, in milliseconds. */
const DEADLINE = 15_000;

async function call(path, options) {
  const rest = { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(DEADLINE) };
  const fail = () => {
    throw new Problem(0, "The server does not answer.");
  };
  const response = await fetch(path, { ...options, ...rest }).catch(fail);
  const body = await bodyOf(response).catch(fail);
  if (!response.ok) {
    throw new Problem(response.status, body?.detail ?? String(body).trim(), body?.findings);
  }
  return body;
}

function bodyOf(response) {
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  return isJson ? response.json() : response.text();
}
