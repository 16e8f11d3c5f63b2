// Which page the address means: `#/policies/login` is the page `policies` with one name.

/** The page of the address and the names behind it, decoded. */
export function currentRoute() {
  const [page = "overview", ...names] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  return { page, names: names.map(decode) };
}

/** The address of a page. */
export function href(page, ...names) {
  return `#/${[page, ...names.map(encodeURIComponent)].join("/")}`;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
