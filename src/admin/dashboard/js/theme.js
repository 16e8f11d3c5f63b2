// Colours of the page's style for drawings on a canvas.

import { element } from "./dom.js";

const NAMES = ["ink", "rule", "rule-strong", "allowed", "allowed-tint", "delayed", "limited"];

/** The colours in force. `changed` is called when the system turns light or dark. */
export function watchColours(changed) {
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", () => changed(read()));
  return read();
}

function read() {
  // A drawing takes no `light-dark()`: an element tells what is in force.
  const probe = element("i", { hidden: true });
  document.body.append(probe);
  const entries = NAMES.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(entries);
}
