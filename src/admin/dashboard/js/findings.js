// What a check has found, as items of a list.

import { button, element } from "./dom.js";

/** What was found, and what to do. */
export function findingText({ message, help }) {
  return [message, help].filter(Boolean).join(": ");
}

/** Items for findings. `go` shows a place in the text, if there is one. */
export function findingItems(findings, go = null) {
  return findings.map(({ severity, line, column, message, help }) => {
    const place = line && (go ? button(`Line ${line}`, () => go(line, column), { class: "quiet" }) : `Line ${line}, `);
    return element("li", { class: severity }, place || null, element("b", {}, `${severity}: `), message, help ? element("span", { class: "soft" }, ` – ${help}`) : null);
  });
}
