// The policies: all of them, or one with its rates, its keys and its mode.

import { element, setText } from "../../dom.js";
import { count, number, percent, rate } from "../../format.js";
import { createChart } from "../chart.js";
import { confirmChange, reasonField } from "../dialog.js";
import { SHOWN } from "../history.js";
import { figure, keysText, legend, problemLine, section, table } from "../parts.js";
import { href } from "../router.js";

export const TITLE = "Policies";

const MODES = ["enforce", "shadow", "disabled"];

export function show(main, context) {
  const [name] = context.names;
  return name === undefined ? showAll(main, context) : showOne(main, context, name);
}

function showAll(main, { figures }) {
  const all = table("All policies", [
    ["Policy"],
    ["Quota"],
    ["Key"],
    ["Mode"],
    ["Buckets in"],
    ["Keys", "number"],
    ["Limited since the start", "number"],
    ["Bans since the start", "number"],
  ]);
  main.append(element("h1", {}, TITLE), all.node);
  return figures.listen(({ policies }) => all.fill(policies.map(row), "The configuration has no policy."));
}

function row(policy) {
  const cells = [
    element("a", { href: href("policies", policy.name) }, policy.name),
    `${policy.quota} · ${policy.algorithm.replaceAll("_", " ")}`,
    policy.key.join(", "),
    modeText(policy.mode),
    storeText(policy),
    keysText(policy),
    number(policy.decisions.limited),
    policy.bans === null ? "–" : number(policy.bans),
  ];
  return { key: policy.name, cells };
}

function modeText({ current, configured, percent: part }) {
  const share = part === null ? "" : ` for ${part}\u00a0% of keys`;
  return current === configured ? `${current}${share}` : `${current} until the configuration changes, configured: ${configured}`;
}

function storeText({ store, sync_s: sync }) {
  return sync === null ? store : `memory, synchronised every ${number(sync * 1_000)}\u00a0ms`;
}

function showOne(main, { figures, session }, name) {
  const parts = {
    allowed: figure("Allowed", "per second, last 10 s"),
    delayed: figure("Delayed", "per second, last 10 s"),
    limited: figure("Limited", "per second, last 10 s"),
    shadowed: figure("Shadowed", "per second, last 10 s"),
    keys: figure("Keys", "with a bucket now"),
    near: figure("Near the quota", "requests that left 20 % or less, since the start"),
    bans: figure("Bans", "since the start; – without a penalty"),
  };
  const about = element("p", { class: "soft" });
  const verdict = element("p", { class: "verdict" });
  const chart = createChart();
  const routes = element("ul", { class: "plain" });
  const mode = element("p");
  const shadowed = table("Clients that would have been limited most", [["Name in logs"], ["Requests", "number"]]);
  const inShadow = section("Would have limited most, while in shadow", shadowed.node);
  const problem = problemLine();
  const change = element("button", { type: "button", onclick: () => changeMode(session, figures, name) }, "Change the mode …");
  main.append(
    element("p", { class: "small" }, element("a", { href: href("policies") }, "All policies")),
    element("h1", {}, name),
    about,
    problem.node,
    verdict,
    element("dl", { class: "figures" }, ...Object.values(parts).map(({ node }) => node)),
    section("Decisions per second, last 5 minutes", chart.node, legend()),
    section("Mode", mode, change),
    inShadow,
    section("Used by", routes),
  );
  return figures.listen(({ policies, history }) => {
    const policy = policies.find((one) => one.name === name);
    problem.show(policy ? null : { message: `There is no policy ${name}.` });
    if (policy) {
      setText(about, `${policy.quota}, ${policy.algorithm.replaceAll("_", " ")}, a bucket for each ${policy.key.join(" and ")}, in ${storeText(policy)}`);
      setText(verdict, verdictText(policy));
      setText(mode, capital(modeText(policy.mode)));
      inShadow.hidden = !policy.shadow;
      shadowed.fill((policy.shadow?.most_limited ?? []).map(({ key_id: id, requests }) => ({ key: id, cells: [id, number(requests)] })), "No client so far.");
      showFigures(parts, policy, history.recent(10_000, name));
      chart.show(history.rates(name));
      showRoutes(routes, policy.routes);
    }
  });
}

function showFigures(parts, policy, recent) {
  for (const decision of SHOWN) {
    parts[decision].show(rate(recent[decision]));
  }
  const isElsewhere = policy.store === "redis";
  parts.keys.show(keysText(policy), isElsewhere ? "not counted here" : `with a bucket now, room for ${number(policy.buckets.capacity)}`);
  parts.near.show(number(policy.near));
  parts.bans.show(policy.bans === null ? "–" : number(policy.bans));
}

/** What a policy did, or would have done in shadow, since the start. */
function verdictText({ mode, decisions, shadow }) {
  const decided = decisions.allowed + decisions.overflowed + decisions.tagged + decisions.delayed + decisions.limited + decisions.shadowed;
  if (decided === 0) {
    return "No request has met this policy since the start.";
  }
  const inShadow = mode.current === "shadow" || decisions.shadowed > 0;
  const [verb, units] = inShadow && decisions.shadowed >= decisions.limited ? ["Would have limited or delayed", decisions.shadowed] : ["Limited", decisions.limited];
  const clients = inShadow && shadow ? ` In shadow: ${number(shadow.limited_clients)} of ${count(shadow.clients, "client")}.` : "";
  return `${verb} ${percent(units / decided)} of ${count(decided, "request")} since the start: ${number(units)}.${clients}`;
}

function showRoutes(list, routes) {
  const names = routes.map((route) => route || "requests without a route");
  if (list.textContent !== names.join("")) {
    list.replaceChildren(...names.map((route) => element("li", {}, route)));
  }
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

async function changeMode(session, figures, name) {
  const policy = figures.policies.find((one) => one.name === name);
  const options = [...MODES, "configured"].map((mode) => element("option", { value: mode, selected: mode === policy?.mode.current }, mode));
  const input = element("select", {}, ...options);
  const mode = { input, node: element("label", { class: "field" }, "Mode", input) };
  const isChanged = await confirmChange({
    title: `Mode of ${name}`,
    text: "Until the configuration changes, for all keys of this proxy. Shadow decides and counts without limiting.",
    fields: { mode, reason: reasonField() },
    action: "Change",
    preview: async ({ mode: wanted }) => [element("p", {}, `${policy?.mode.current} becomes ${wanted}.`)],
    apply: ({ mode: wanted, reason }) =>
      session.post(`/v1/policies/${encodeURIComponent(name)}/mode`, { mode: wanted, reason: reason || null }),
  });
  if (isChanged) {
    await figures.refresh();
  }
}
