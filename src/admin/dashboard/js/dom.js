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
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
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
  const fixed = nodes.find((node) => node.parentNode === container && held.some((one) => node.contains(one ?? null)));
  nodes.forEach((node, place) => {
    while (node === fixed && container.children[place] !== node) {
      container.append(container.children[place]);
    }
    if (container.children[place] !== node) {
      container.insertBefore(node, container.children[place] ?? null);
    }
  });
}

/**
 * Makes these the children of a node: texts and elements, made anew or there already. What is equal to what is there
 * stays, and so do its focus and selection. What can be clicked is replaced as a whole, as its listener is its
 * own. If what has the focus goes, what can be clicked beside it gets it.
 */
export function put(node, ...children) {
  const made = children.flat().map((child) => (typeof child === "string" ? new Text(child) : child));
  const hadFocus = node.contains(document.activeElement);
  made.forEach((child, place) => {
    const before = node.childNodes[place];
    if (!before) {
      node.append(child);
    } else if (!before.isEqualNode(child)) {
      if (!before.matches?.("a, button") && before.cloneNode().isEqualNode(child.cloneNode())) {
        put(before, ...child.childNodes);
      } else {
        before.replaceWith(child);
      }
    }
  });
  [...node.childNodes].slice(made.length).forEach((child) => child.remove());
  if (hadFocus && !node.contains(document.activeElement)) {
    node.querySelector("a, button")?.focus({ preventScroll: true });
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
