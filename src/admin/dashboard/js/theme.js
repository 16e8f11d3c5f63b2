// Colours of the page's style for drawings on a canvas.

const NAMES = {
  ink: "--ink",
  rule: "--rule",
  ruleStrong: "--rule-strong",
  allowed: "--allowed",
  allowedTint: "--allowed-tint",
  delayed: "--delayed",
  limited: "--limited",
  shadowed: "--shadowed",
};

/** The colours in force. `changed` is called when the system turns light or dark. */
export function watchColours(changed) {
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", () => changed(read()));
  return read();
}

function read() {
  const style = getComputedStyle(document.documentElement);
  const entries = Object.entries(NAMES).map(([name, property]) => [name, style.getPropertyValue(property).trim()]);
  return Object.fromEntries(entries);
}
