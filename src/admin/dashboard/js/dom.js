// Building elements. Texts become text nodes: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes that start with `on` are listeners; null and false are left out. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    setAttribute(node, name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    return;
  }
  if (name.startsWith("on")) {
    node.addEventListener(name.slice(2), value);
  } else {
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

/** A choice of values by their texts, or by what has a `title`. */
export function select(texts, chosen = null, attributes = {}) {
  const options = Object.entries(texts).map(([value, text]) => element("option", { value, selected: value === chosen }, text.title ?? text));
  return element("select", attributes, ...options);
}

/** An input below its label, and what stands below it. */
export function field(label, input, ...below) {
  return element("label", { class: "field" }, label, input, ...below);
}

/** A button that does not send its form. */
export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

/** Hides or shows a node. Its focus, if it has it, goes to `heir`. */
export function hide(node, isHidden, heir) {
  if (isHidden && document.activeElement === node) {
    heir.focus({ preventScroll: true });
  }
  node.hidden = isHidden;
}

/** Copies a text, and says so in a node, or why not. */
export async function copy(text, said, done, failed) {
  try {
    await navigator.clipboard.writeText(text);
    setText(said, done);
  } catch {
    setText(said, failed);
  }
}

/**
 * Puts nodes into this order in a container, and removes others. The node with the focus, or with
 * selected text, is not moved: moving it would end both.
 */
export function arrange(container, nodes) {
  const wanted = new Set(nodes);
  [...container.children].filter((node) => !wanted.has(node)).forEach((node) => node.remove());
  const held = [document.activeElement, document.getSelection()?.anchorNode];
  const fixed = Math.max(0, nodes.findIndex((node) => node.parentNode === container && held.some((one) => node.contains(one ?? null))));
  if (nodes.length && nodes[fixed].parentNode !== container) {
    container.prepend(nodes[fixed]);
  }
  for (let place = fixed - 1; place >= 0; place -= 1) {
    if (nodes[place + 1].previousElementSibling !== nodes[place]) {
      nodes[place + 1].before(nodes[place]);
    }
  }
  for (let place = fixed + 1; place < nodes.length; place += 1) {
    if (nodes[place - 1].nextElementSibling !== nodes[place]) {
      nodes[place - 1].after(nodes[place]);
    }
  }
}

/** The element with this id, which the page has. */
export function byId(id) {
  return document.getElementById(id);
}

/** Writes a text if it differs, so that assistive technology hears changes only. */
export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}
