// The routes: their requests now, and the limits that apply there.

import { element } from "../../dom.js";
import { rate } from "../../format.js";
import { finder, policyLink, problemLine, recentCells, repeat, table } from "../parts.js";

export const TITLE = "Routes";

const PERIOD = 3_500;

export function show(main, { session }) {
  const problem = problemLine();
  const all = table("Routes", [
    ["Route"],
    ["Requests that it takes"],
    ["Upstream"],
    ["Limits"],
    ["Requests", "number"],
    ["Limited", "number"],
    ["4xx", "number"],
    ["5xx", "number"],
    ["Median", "number"],
    ["99 % within", "number"],
  ]);
  let routes = [];
  const find = finder("routes", "Name, condition or limit", (isWanted) => {
    const wanted = routes.filter(({ name, match, limits }) => isWanted(name, match, ...limits));
    all.fill(wanted.map(row), "No route is like that.");
    return [wanted.length, routes.length];
  });
  const look = async () => {
    ({ routes } = await session.get("/v1/routes"));
    find.show();
  };
  main.append(
    element("h1", {}, TITLE),
    find.node,
    element("p", { class: "small soft" }, "Requests and times are of the last 10 to 20 s."),
    problem.node,
    all.node,
  );
  return repeat(look, PERIOD, problem.show);
}

function row({ name, match, upstream, limits, recent }) {
  const [requests, ...others] = recentCells(recent);
  const limited = recent === null ? "–" : `${rate(recent.limited_per_s)}/s`;
  const cells = [name, match, upstream ?? "answered here", element("span", { class: "row" }, ...limits.map(policyLink)), requests, limited, ...others];
  return { key: name, cells };
}
