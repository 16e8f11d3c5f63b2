// The routes: their requests now, and the limits that apply there.

import { element } from "../../dom.js";
import { finder, lookingPage, policyLink, RECENT, table } from "../parts.js";

export const TITLE = "Routes";

const PERIOD = 3_500;
const COLUMNS = [
  ["Route", ({ name }) => name],
  ["Requests that it takes", ({ match }) => match],
  ["Upstream", ({ upstream }) => upstream ?? "answered here"],
  ["Limits", ({ limits }) => element("span", { class: "row" }, ...limits.map(policyLink))],
  ...RECENT,
];

export function show(main, { session }) {
  const all = table(TITLE, COLUMNS, ({ name }) => name);
  const texts = ({ name, match, limits }) => [name, match, ...limits];
  const find = finder("routes", "Name, condition or limit", texts, {}, (wanted) => all.fill(wanted, "No route is like that."));
  const look = async () => find.show((await session.get("/v1/routes")).routes);
  const note = element("p", { class: "small soft" }, "Requests and times are of the last 10 to 20 s.");
  return lookingPage(main, TITLE, look, PERIOD, find.node, note, all.node);
}
