// Policies as a configuration that runs: block style for names, flow style for settings.

/** A configuration with these policies on one route. */
export function configuration(policies) {
  const lines = policies.map(({ name, ...settings }) => `  ${text(name)}: ${flow(settings)}`);
  const names = policies.map(({ name }) => text(name)).join(", ");
  return [
    "policies:",
    ...lines,
    "",
    "routes:",
    "  - upstream: http://127.0.0.1:3000   # yours",
    `    limits: [${names}]`,
    "",
  ].join("\n");
}

function flow(value) {
  if (Array.isArray(value)) {
    return `[${value.map(flow).join(", ")}]`;
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value).map(([key, item]) => `${text(key)}: ${flow(item)}`);
    return entries.length ? `{ ${entries.join(", ")} }` : "{}";
  }
  return typeof value === "string" ? text(value) : String(value);
}

/** Plain where YAML reads it as the same text, else quoted as JSON, which YAML reads as well. */
function text(value) {
  const isPlain = /^[A-Za-z0-9_./][A-Za-z0-9_./-]*$/.test(value);
  return isPlain ? value : JSON.stringify(value);
}
