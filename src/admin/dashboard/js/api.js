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

function headers(token) {
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", credentials: "omit" });
  } catch {
    throw new Problem(0, "The server does not answer.");
  }
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const body = isJson ? await response.json().catch(() => null) : await response.text();
  if (!response.ok) {
    throw new Problem(response.status, body?.detail ?? String(body).trim(), body?.findings);
  }
  return body;
}
