// The routes: their requests now, and the limits that apply there.

import { element, setText } from "../../dom.js";
import { number } from "../../format.js";
import { problemLine, recentCells, repeat, table } from "../parts.js";
import { href } from "../router.js";

export const TITLE = "Routes";

const PERIOD = 3_500;

export function show(main, { session }) {
  const search = element("input", { type: "search", "aria-label": "Search routes", placeholder: "Name, condition or limit" });
  const found = element("p", { class: "small soft", role: "status" });
  const problem = problemLine();
  const all = table("Routes", [
    ["Route"],
    ["Requests that it takes"],
    ["Upstream"],
    ["Limits"],
    ["Requests", "number"],
    ["4xx", "number"],
    ["5xx", "number"],
    ["Median", "number"],
    ["99 % within", "number"],
  ]);
  let routes = [];
  const fill = () => {
    const wanted = routes.filter(({ name, match, limits }) => [name, match, ...limits].some((text) => text.toLowerCase().includes(search.value.trim().toLowerCase())));
    setText(found, `${number(wanted.length)} of ${number(routes.length)} routes`);
    all.fill(wanted.map(row), "No route is like that.");
  };
  const look = async () => {
    ({ routes } = await session.get("/v1/routes"));
    problem.show(null);
    fill();
  };
  search.addEventListener("input", fill);
  main.append(
    element("h1", {}, TITLE),
    element("div", { class: "row" }, search, found),
    element("p", { class: "small soft" }, "Requests and times are of the last 10 to 20 s."),
    problem.node,
    all.node,
  );
  return repeat(look, PERIOD, (error) => problem.show(error));
}

function row({ name, match, upstream, limits, recent }) {
  const links = limits.map((limit) => element("a", { href: href("policies", limit) }, limit));
  const cells = [name, match, upstream ?? "answered here", element("span", { class: "row" }, ...links), ...recentCells(recent)];
  return { key: name, cells };
}
