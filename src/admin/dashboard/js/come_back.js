// The page that comes after signing in. The tab remembers it; what is behind `#` stays in the browser.

const KEY = "come-back";

/** Has a page of this server shown after the next sign-in in this tab. */
export function comeBackTo(address) {
  sessionStorage.setItem(KEY, address);
}

/** The address of that page, which is then forgotten; null without one. */
export function takeComeBack() {
  const address = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  return address?.startsWith("/playground") ? address : null;
}
