// The policies as a configuration, checked while it is written.

import { byId, setText } from "../dom.js";
import { findingItems } from "../findings.js";
import { count } from "../format.js";
import { configuration } from "./yaml.js";

/** The pause in typing after which the text is checked, in milliseconds. */
const PAUSE = 250;

/** Wires the text, its findings and the button that applies it. `post` sends to the API. */
export function wireEditor(model, post) {
  const [text, apply, status] = [byId("text"), byId("apply"), byId("checked")];
  let timer = null;
  let shown = "";
  const check = async () => {
    const checked = text.value;
    const found = await find(post, checked);
    if (checked === text.value) {
      const errors = found.filter(({ severity }) => severity === "error").length;
      const warnings = found.length - errors;
      const told = [errors && count(errors, "error"), warnings && count(warnings, "warning")].filter(Boolean);
      text.setAttribute("aria-invalid", String(errors > 0));
      setText(status, told.join(", ") || "Sound.");
      byId("findings").replaceChildren(...findingItems(found, (line, column) => select(text, line, column)));
      apply.disabled = checked === shown || errors > 0;
    }
  };
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
  });
  apply.addEventListener("click", async () => {
    try {
      const { settings } = await post("/v1/playground", { text: text.value, arrivals: [] });
      model.set({ policies: Object.entries(settings ?? {}).map(([name, policy]) => ({ ...policy, name })) });
    } catch (problem) {
      setText(status, problem.message);
    }
  });
  const show = () => {
    const fresh = configuration(model.policies);
    if (byId("yaml").open && fresh !== shown && document.activeElement !== text) {
      shown = fresh;
      text.value = fresh;
      check();
    }
  };
  model.listen(show);
  byId("yaml").addEventListener("toggle", show);
}

async function find(post, text) {
  try {
    return (await post("/v1/check", { text })).findings;
  } catch (problem) {
    return [{ severity: "error", message: problem.message }];
  }
}

/** Puts the caret to a place of the text. */
function select(text, line, column) {
  const before = text.value.split("\n").slice(0, line - 1);
  const offset = before.reduce((sum, one) => sum + one.length + 1, 0) + (column ?? 1) - 1;
  text.focus();
  text.setSelectionRange(offset, offset);
}
