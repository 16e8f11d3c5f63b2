// The policies as a configuration, checked while it is written.

import { setText } from "../dom.js";
import { findingItems } from "../findings.js";
import { count } from "../format.js";
import { configuration } from "./yaml.js";

/** The pause in typing after which the text is checked, in milliseconds. */
const PAUSE = 250;

/** Wires the text, its findings and the button that applies it. `post` sends to the API. */
export function wireEditor(model, post, { text, findings, apply, status }) {
  let timer = null;
  let shown = "";
  const check = async () => {
    const checked = text.value;
    const found = await find(post, checked);
    if (checked === text.value) {
      showFindings(found, text, findings, status);
      apply.disabled = checked === shown || found.some(isError);
    }
  };
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
  });
  apply.addEventListener("click", async () => {
    const policies = await read(post, text.value, status);
    if (policies) {
      model.setPolicies(policies);
    }
  });
  model.listen((kind) => {
    if (kind === "policies" || kind === "controls") {
      const fresh = configuration(model.policies);
      if (fresh !== shown && document.activeElement !== text) {
        shown = fresh;
        text.value = fresh;
        check();
      }
    }
  });
}

function isError(finding) {
  return finding.severity === "error";
}

async function find(post, text) {
  try {
    return (await post("/v1/check", { text })).findings;
  } catch (problem) {
    return [{ severity: "error", message: problem.message }];
  }
}

function showFindings(found, text, list, status) {
  const errors = found.filter(isError).length;
  const warnings = found.length - errors;
  text.setAttribute("aria-invalid", String(errors > 0));
  setText(status, summary(errors, warnings));
  list.replaceChildren(...findingItems(found, (line, column) => select(text, line, column)));
}

function summary(errors, warnings) {
  return [errors && count(errors, "error"), warnings && count(warnings, "warning")].filter(Boolean).join(", ") || "Sound.";
}

/** Puts the caret to a place of the text. */
function select(text, line, column) {
  const before = text.value.split("\n").slice(0, line - 1);
  const offset = before.reduce((sum, one) => sum + one.length + 1, 0) + (column ?? 1) - 1;
  text.focus();
  text.setSelectionRange(offset, offset);
}

/** The policies of a text, as the server reads it; null if it refuses. */
async function read(post, text, status) {
  try {
    const { settings } = await post("/v1/playground", { text, arrivals: [] });
    return Object.entries(settings ?? {}).map(([name, policy]) => ({ algorithm: "gcra", ...policy, name }));
  } catch (problem) {
    setText(status, problem.message);
    return null;
  }
}
