// Requests to the API. A problem (RFC 9457) is thrown, with its detail as the message.

export class Problem extends Error {
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

/**
 * Reads a stream of server-sent events until it ends, or `signal` ends it; calls `listener` with the
 * name and the data of each. `EventSource` could not send a token.
 */
export async function stream(path, token, signal, listener) {
  const response = await request(path, { headers: headers(token), signal });
  if (!response.ok) {
    throw await problemOf(response);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    blocks.forEach((block) => tell(block, listener));
  }
}

function tell(block, listener) {
  const fields = new Map(block.split("\n").map((line) => /^([^:]*): ?(.*)$/.exec(line)?.slice(1) ?? [line, ""]));
  if (fields.has("data")) {
    listener(fields.get("event") ?? "message", JSON.parse(fields.get("data")));
  }
}

function headers(token) {
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** The longest time for a whole answer, in milliseconds. */
const DEADLINE = 15_000;

async function call(path, options) {
  const response = await request(path, { ...options, signal: AbortSignal.timeout(DEADLINE) });
  if (!response.ok) {
    throw await problemOf(response);
  }
  return bodyOf(response);
}

async function request(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", credentials: "omit" });
  } catch {
    throw new Problem(0, "The server does not answer.");
  }
}

function bodyOf(response) {
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  return isJson ? response.json().catch(() => null) : response.text();
}

async function problemOf(response) {
  const body = await bodyOf(response);
  return new Problem(response.status, body?.detail ?? String(body).trim(), body?.findings);
}
