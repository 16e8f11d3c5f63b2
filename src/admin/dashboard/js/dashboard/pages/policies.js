// The policies: all of them, or one with its rates, its keys and its mode.

import { element, setText } from "../../dom.js";
import { amount, capital, count, number, percent, quotaText, rate, size } from "../../format.js";
import { confirmChange, reasonField } from "../dialog.js";
import { pastChart } from "../past.js";
import { decisionFigures, figure, keysText, legend, problemLine, quotaAndAlgorithm, repeat, section, SHOWN, table } from "../parts.js";
import { href } from "../router.js";
import { bucketText } from "./client_text.js";
import { topTable } from "./offenders.js";

export const TITLE = "Policies";

/** Rates before the first are known. */
const UNKNOWN = Object.fromEntries(SHOWN.map((decision) => [decision, NaN]));
/** The time between two looks at who spends most, in milliseconds. */
const PERIOD = 3_500;
const MODES = ["enforce", "shadow", "disabled"];

export function show(main, context) {
  const [name] = context.names;
  return name === undefined ? showAll(main, context) : showOne(main, context, name);
}

function showAll(main, { figures }) {
  const search = element("input", { type: "search", "aria-label": "Search policies", placeholder: "Name, key or route" });
  const [state, order] = [choice(STATES), choice(ORDERS)];
  const found = element("p", { class: "small soft", role: "status" });
  const all = policyTable("All policies");
  const fill = () => {
    const count = all.fill(figures, Infinity, (policy, recent) => isNamed(policy, search.value) && STATES[state.value].is(policy, recent), ORDERS[order.value].by);
    setText(found, `${number(count)} of ${number(figures.policies.length)} policies`);
  };
  [search, state, order].forEach((one) => one.addEventListener("input", fill));
  main.append(
    element("h1", {}, TITLE),
    element("div", { class: "row" }, search, element("label", { class: "inline" }, "Show", state), element("label", { class: "inline" }, "Order by", order), found),
    all.node,
  );
  return figures.listen(fill);
}

const STATES = {
  all: { text: "all", is: () => true },
  limiting: { text: "those that limit now", is: (policy, recent) => recent.limited > 0 },
  undecided: { text: "those that can’t decide now", is: (policy, recent) => recent.error > 0 },
  near: { text: "those with keys near the quota", is: ({ buckets }) => buckets.near > 0 },
  enforce: { text: "enforced", is: ({ mode }) => mode.current === "enforce" },
  shadow: { text: "in shadow", is: ({ mode }) => mode.current === "shadow" },
  disabled: { text: "disabled", is: ({ mode }) => mode.current === "disabled" },
  set: { text: "set by operators", is: ({ mode, granted_keys: grants, banned_keys: bans }) => mode.set_at !== null || grants > 0 || bans > 0 },
};

const limitedNow = (policy, recent) => recent.limited + recent.error || 0;
const ORDERS = {
  limited: { text: "what is limited now", by: limitedNow },
  decisions: { text: "decisions now", by: (policy, recent) => SHOWN.reduce((sum, decision) => sum + recent[decision], 0) || 0 },
  total: { text: "what was limited since the start", by: ({ decisions }) => decisions.limited },
  keys: { text: "keys now", by: ({ buckets }) => buckets.in_use },
  name: { text: "name", by: () => 0 },
};

function choice(words) {
  return element("select", {}, ...Object.entries(words).map(([value, { text }]) => element("option", { value }, text)));
}

function isNamed({ name, key, routes }, text) {
  const wanted = text.trim().toLowerCase();
  return [name, ...key, ...routes].some((one) => one.toLowerCase().includes(wanted));
}

/** A table of policies. Rows keep their order while a pointer or the focus is on them. */
export function policyTable(caption) {
  const shown = table(caption, [
    ["Policy"],
    ["Quota"],
    ["Mode"],
    ["Decisions", "number"],
    ["Limited", "number"],
    ["Share limited", "number"],
    ["Limited since the start", "number"],
    ["Bans", "number"],
    ["Keys now", "number"],
  ]);
  let order = [];
  return {
    node: shown.node,
    /** Shows the first `most` of the wanted policies, the largest `by` first. Returns the number of wanted ones. */
    fill({ policies }, most, isWanted = () => true, by = limitedNow) {
      const known = policies.map((policy) => ({ policy, recent: policy.recent ?? UNKNOWN }));
      const wanted = known.filter(({ policy, recent }) => isWanted(policy, recent));
      const isHeld = shown.node.matches(":hover, :focus-within");
      const place = ({ policy }) => (isHeld && order.includes(policy.name) ? order.indexOf(policy.name) : Infinity);
      wanted.sort((left, right) => place(left) - place(right) || by(right.policy, right.recent) - by(left.policy, left.recent) || left.policy.name.localeCompare(right.policy.name));
      const rows = wanted.slice(0, most).map(row);
      order = rows.map(({ key }) => key);
      shown.fill(rows, policies.length ? "No policy is like that." : "The configuration has no policy.");
      return wanted.length;
    },
  };
}

function row({ policy, recent }) {
  const all = SHOWN.reduce((sum, decision) => sum + recent[decision], 0);
  const cells = [
    element("a", { href: href("policies", policy.name) }, policy.name),
    quotaAndAlgorithm(policy),
    modeText(policy.mode),
    `${rate(all)}/s`,
    nowText(policy, recent, (one) => `${rate(one)}/s`),
    all > 0 ? nowText(policy, recent, (one) => percent(one / all)) : "–",
    limitedText(policy),
    policy.bans === null ? "–" : number(policy.bans),
    keysText(policy),
  ];
  return { key: policy.name, cells };
}

/** Limited requests, and those that only would have been. A policy may be in shadow for some keys. */
function nowText({ mode }, { limited, shadowed, error }, words) {
  const isShadow = mode.current === "shadow";
  const parts = [(!isShadow || limited > 0) && words(limited), (isShadow || shadowed > 0) && `${words(shadowed)} in shadow`, error > 0 && `${words(error)} undecided`];
  return parts.filter(Boolean).join(", ");
}

/** Beside what a policy limited: what it would have limited in shadow, and what the store couldn't decide. */
function limitedText({ decisions: { limited, shadowed, error } }) {
  const besides = [[shadowed, "in shadow"], [error, "undecided"]].filter(([some]) => some > 0);
  return [number(limited), ...besides.map(([some, word]) => `${number(some)} ${word}`)].join(", ");
}

function modeText({ current, configured, percent: part }) {
  const share = part === null ? "" : ` for ${part}\u00a0% of keys`;
  return current === configured ? `${current}${share}` : `${current} until the configuration changes, configured: ${configured}`;
}

function storeText({ store, sync_s: sync }) {
  return sync === null ? store : `memory, synchronised every ${number(sync * 1_000)}\u00a0ms`;
}

function showOne(main, { figures, session }, name) {
  const decisions = decisionFigures("requests per second, last 10 to 20\u00a0s");
  const parts = {
    keys: figure("Keys", "with a bucket now"),
    near: figure("Near the quota", "keys now"),
    memory: figure("Memory", "of buckets now"),
    bans: figure("Bans", "since the start; – without a penalty"),
    spent: figure("Spent", "since the start, as responses say"),
  };
  const spenders = topTable(session, "Clients that spent most in the last 15 minutes");
  const whoSpends = section("Who spends most", spenders.node);
  const about = element("p", { class: "soft" });
  const verdict = element("p", { class: "verdict" });
  const past = pastChart({ session, figures }, SHOWN, name);
  const routes = element("ul", { class: "plain" });
  const mode = element("p");
  const shadowed = table("Clients that would have been limited most", [["Name in logs"], ["Requests since the start that it would have limited", "number"]]);
  const inShadow = section("Would have limited most, while in shadow", shadowed.node);
  const problem = problemLine();
  const change = element("button", { type: "button", onclick: () => changeMode(session, figures, name) }, "Change the mode …");
  main.append(
    element("p", { class: "small" }, element("a", { href: href("policies") }, "All policies")),
    element("h1", {}, name),
    about,
    problem.node,
    verdict,
    element("dl", { class: "figures" }, ...decisions.nodes, ...Object.values(parts).map(({ node }) => node)),
    section("Decisions per second", past.node, legend()),
    section("Mode", mode, change),
    whoSpends,
    inShadow,
    section("Used by", routes),
  );
  let ends = null;
  const lookAtSpenders = async () => {
    if (!whoSpends.hidden) {
      spenders.fill((await session.get(`/v1/top?by=units&window=15m&limit=5&policy=${encodeURIComponent(name)}`)).items, figures.policies.find((one) => one.name === name)?.unit);
    }
  };
  const end = figures.listen(({ policies }) => {
    const policy = policies.find((one) => one.name === name);
    problem.show(policy ? null : { message: `There is no policy ${name}.` });
    if (policy) {
      setText(about, `${quotaText(policy.quota, policy.unit)}, ${policy.algorithm.replaceAll("_", " ")}, a bucket ${bucketText(policy.key)}, in ${storeText(policy)}`);
      setText(verdict, verdictText(policy));
      setText(mode, capital(modeText(policy.mode)));
      inShadow.hidden = !policy.shadow;
      shadowed.fill((policy.shadow?.most_limited ?? []).map(({ key_id: id, requests }) => ({ key: id, cells: [id, number(requests)] })), "No client so far.");
      decisions.show(policy.recent, policy.decisions);
      showFigures(parts, policy);
      showRoutes(routes, policy.routes);
      whoSpends.hidden = policy.settled_units === null;
      ends ??= [past.begin(), repeat(lookAtSpenders, PERIOD, () => {})];
    }
  });
  return () => {
    end();
    ends?.forEach((one) => one());
  };
}

function showFigures(parts, policy) {
  const isElsewhere = policy.store === "redis";
  parts.keys.show(keysText(policy), isElsewhere ? "not counted here" : `with a bucket now, room for ${number(policy.buckets.capacity)}`);
  const nearRequests = `${count(policy.near, "request")} since the start left 20\u00a0% or less`;
  parts.near.show(isElsewhere ? "in Redis" : number(policy.buckets.near), isElsewhere ? nearRequests : `keys now have 20\u00a0% or less left; ${nearRequests}`);
  parts.memory.show(...memoryTexts(policy));
  parts.spent.node.hidden = policy.settled_units === null;
  parts.spent.show(amount(policy.settled_units ?? 0, policy.unit));
  parts.bans.show(policy.bans === null ? "–" : number(policy.bans));
}

/** The memory of a policy's buckets. Those in Redis have some here, for when it does not answer. */
function memoryTexts({ store, buckets: { bytes, max_bytes: most } }) {
  if (most === 0) {
    return ["–", "only requests in flight take some"];
  }
  const whose = store === "redis" ? "of local buckets now" : "of buckets now";
  return [size(bytes), `${whose}, at most ${size(most)}`];
}

/** What a policy did, or would have done in shadow, since the start. */
function verdictText({ mode, decisions, shadow }) {
  const decided = SHOWN.reduce((sum, decision) => sum + decisions[decision], 0);
  if (decided === 0) {
    return "No request has met this policy since the start.";
  }
  const isTrial = mode.current === "shadow" || decisions.shadowed > decisions.limited;
  const clients = shadow && `${number(shadow.limited_clients)} of ${count(shadow.clients, "client")}`;
  const undecided = decisions.error > 0 ? ` The store couldn’t decide ${number(decisions.error)}.` : "";
  const requests = (some) => `${percent(some / decided)} of requests, ${number(some)} of ${number(decided)}`;
  if (isTrial) {
    // A request that another policy refuses is not counted: this is what enforcing would change.
    return `Would have limited or delayed ${requests(decisions.shadowed)}${clients ? `, and ${clients}` : ""}, since the start.${undecided}`;
  }
  const besides = clients ? ` In shadow it would have limited ${clients}.` : "";
  return `Limited ${requests(decisions.limited)}, since the start.${undecided}${besides}`;
}

function showRoutes(list, routes) {
  const names = routes.map((route) => route || "requests without a route");
  if (list.textContent !== names.join("")) {
    list.replaceChildren(...names.map((route) => element("li", {}, route)));
  }
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
