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
