// The policies: all of them, or one with its rates, its keys and its mode.

import { button, element, hide, select, setText } from "../../dom.js";
import { amount, capital, count, number, percent, quotaText, rate, size } from "../../format.js";
import { act, actButton, setMode } from "../acts.js";
import { changeText } from "../events.js";
import { pastChart } from "../past.js";
import { decisionFigures, figure, finder, keysText, legend, policyLink, problemLine, quotaAndAlgorithm, repeat, section, SHOWN, table } from "../parts.js";
import { href } from "../router.js";
import { bucketText } from "./client_text.js";
import { topTable } from "./offenders.js";

export const TITLE = "Policies";

/** What becomes of requests beyond the quota, unless they are refused. */
const BEYOND = {
  decoy: "; what it limits is answered as if it had passed",
  tarpit: "; what it limits is refused slowly",
  drop: "; what it limits gets no answer",
  tag: "; what it limits passes with a tag",
  route: "; what it limits goes to another upstream",
  wait: "; what it limits waits for units",
};

/** Rates before the first are known. */
const UNKNOWN = Object.fromEntries(SHOWN.map((decision) => [decision, NaN]));
/** The time between two looks at clients, in milliseconds, and the most of them. */
const PERIOD = 3_500;
const MOST_CLIENTS = 5;

export function show(main, context) {
  const [name] = context.names;
  return name === undefined ? showAll(main, context) : showOne(main, context, name);
}

function showAll(main, context) {
  const { figures } = context;
  const [state, order] = [select(STATES), select(ORDERS)];
  const all = policyTable(context, "All policies");
  const find = finder("policies", "Name, key or route", (isNamed) => {
    const isWanted = (policy, recent) => isNamed(policy.name, ...policy.key, ...policy.routes) && STATES[state.value].is(policy, recent);
    return [all.fill(Infinity, isWanted, ORDERS[order.value].by), figures.policies.length];
  }, { Show: state, "Order by": order });
  main.append(element("h1", {}, TITLE), find.node, all.node);
  return figures.listen(find.show);
}

const STATES = {
  all: { title: "all", is: () => true },
  limiting: { title: "those that limit now", is: (policy, recent) => recent.limited > 0 },
  undecided: { title: "those that can’t decide now", is: (policy, recent) => recent.error > 0 },
  near: { title: "those with keys near the quota", is: ({ buckets }) => buckets.near > 0 },
  enforce: { title: "enforced", is: ({ mode }) => mode.current === "enforce" },
  shadow: { title: "in shadow", is: ({ mode }) => mode.current === "shadow" },
  disabled: { title: "disabled", is: ({ mode }) => mode.current === "disabled" },
  set: { title: "with bans, grants or a set mode", is: ({ mode, granted_keys: grants, banned_keys: bans }) => mode.set_at !== null || grants > 0 || bans > 0 },
};

const limitedNow = (policy, recent) => recent.limited + recent.error || 0;
const ORDERS = {
  limited: { title: "what is limited now", by: limitedNow },
  decisions: { title: "decisions now", by: (policy, recent) => SHOWN.reduce((sum, decision) => sum + recent[decision], 0) || 0 },
  total: { title: "what was limited since the start", by: ({ decisions }) => decisions.limited },
  keys: { title: "keys now", by: ({ buckets }) => buckets.in_use },
  name: { title: "name", by: () => 0 },
};

/** A table of policies. Rows keep their order while a pointer or the focus is on them. */
export function policyTable({ session, figures }, caption) {
  const shown = table(caption, [
    ["Policy"],
    ["Quota"],
    ["Mode"],
    ["Decisions", "number"],
    ["Limited", "number"],
    ["Share limited", "number"],
    ["Limited since the start", "number"],
    ["Banned now", "number"],
    ["Keys now", "number"],
  ]);
  let order = [];
  return {
    node: shown.node,
    /** Shows the first `most` of the wanted policies, the largest `by` first. Returns the number of wanted ones. */
    fill(most, isWanted = () => true, by = limitedNow) {
      const { policies } = figures;
      const known = policies.map((policy) => ({ policy, recent: policy.recent ?? UNKNOWN }));
      const wanted = known.filter(({ policy, recent }) => isWanted(policy, recent));
      const isHeld = shown.node.matches(":hover, :focus-within");
      const place = ({ policy }) => (isHeld && order.includes(policy.name) ? order.indexOf(policy.name) : Infinity);
      wanted.sort((left, right) => place(left) - place(right) || by(right.policy, right.recent) - by(left.policy, left.recent) || left.policy.name.localeCompare(right.policy.name));
      const rows = wanted.slice(0, most).map(({ policy, recent }) => row(policy, recent, modeButton(session, figures, policy), figures.events.changesOf(policy.name)));
      order = rows.map(({ key }) => key);
      shown.fill(rows, policies.length ? "No policy is like that." : "The configuration has no policy.");
      return wanted.length;
    },
  };
}

function row(policy, recent, mode, [changed]) {
  const all = SHOWN.reduce((sum, decision) => sum + recent[decision], 0);
  const cells = [
    policyLink(policy.name),
    changed ? element("div", {}, quotaAndAlgorithm(policy), element("div", { class: "small soft" }, capital(changeText(changed)))) : quotaAndAlgorithm(policy),
    mode,
    `${rate(all)}/s`,
    limitedText(policy, recent, (one) => `${rate(one)}/s`, undecided(policy.on_store_error)),
    all > 0 ? limitedText(policy, recent, (one) => percent(one / all)) : "–",
    limitedText(policy, policy.decisions, number),
    number(policy.banned_keys),
    keysText(policy),
  ];
  return { key: policy.name, cells };
}

/** Limited requests, those that only would have been, as a policy may be in shadow for some keys, and undecided ones. */
function limitedText({ mode }, { limited, shadowed, error }, words, undecidedWord = "undecided") {
  const isShadow = mode.current === "shadow";
  const parts = [(!isShadow || limited > 0) && words(limited), (isShadow || shadowed > 0) && `${words(shadowed)} in shadow`, error > 0 && `${words(error)} ${undecidedWord}`];
  return parts.filter(Boolean).join(", ");
}

/** What becomes of requests that the store can't decide. */
const FATES = { admit: "admitted", refuse: "refused" };
const undecided = (on) => ["undecided", FATES[on]].filter(Boolean).join(": ");

/** The mode, which opens the dialog that changes it. The configuration alone enables a disabled policy. */
function modeButton(session, figures, policy) {
  const text = modeText(policy.mode);
  return policy.mode.configured === "disabled" ? text : actButton(session, text, setMode(policy), () => figures.refresh(), { class: "plain", "aria-label": `${text}: set the mode of ${policy.name}` });
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
    bans: figure("Banned", "keys now"),
    spent: figure("Spent", "since the start, as responses say"),
  };
  const limited = whoSection(session, "Who is limited most, in the last 5\u00a0minutes", "Clients that were limited most in the last 5 minutes", LIMITED, `by=limited&window=5m&policy=${encodeURIComponent(name)}`);
  const spenders = whoSection(session, "Who spends most, in the last 15\u00a0minutes", "Clients that spent most in the last 15 minutes", ["units"], `by=units&window=15m&policy=${encodeURIComponent(name)}`);
  const about = element("p", { class: "soft" });
  const verdict = element("p", { class: "verdict" });
  const changes = element("ul", { class: "plain" });
  const past = pastChart({ session, figures }, name);
  const routes = element("p");
  const known = () => figures.policies.find((one) => one.name === name);
  const set = (label, change) => button(`${label}\u00a0…`, () => act(session, change(known())).then(() => figures.refresh()));
  const mode = element("p");
  const change = set("Change the mode", (policy) => setMode(policy, policy.mode.current));
  const back = set("Back to the configured mode", (policy) => setMode(policy));
  const shadowed = table("Clients that would have been limited most", [["Name in logs"], ["Requests since the start that it would have limited", "number"]]);
  const overrides = table("Overrides of the quota", [["Requests"], ["Quota"], ["Mode"]]);
  const others = section("Overrides", overrides.node);
  const lookAtOthers = async () => {
    const { first_overrides: first, overrides: all, unit } = await session.get(`/v1/policies/${encodeURIComponent(name)}`);
    others.hidden = all === 0;
    const rows = first.map(({ requests, quota, mode: own }, key) => ({ key, cells: [requests, quota ? quotaText(quota, unit) : "the policy’s", own ?? "the policy’s"] }));
    overrides.fill(all > rows.length ? [...rows, { key: null, cells: [`${number(all - rows.length)} more in the configuration`, "", ""] }] : rows);
  };
  const inShadow = section("Would have limited most, while in shadow", shadowed.node);
  const problem = problemLine();
  main.append(
    element("p", { class: "small" }, element("a", { href: href("policies") }, "All policies")),
    element("h1", {}, name),
    about,
    problem.node,
    verdict,
    changes,
    element("dl", { class: "figures" }, ...decisions.nodes, ...Object.values(parts).map(({ node }) => node)),
    section("Decisions per second", past.node, legend()),
    section("Mode", mode, element("div", { class: "row" }, change, back)),
    others,
    limited.node,
    spenders.node,
    inShadow,
    section("Used by", routes),
  );
  let ends = null;
  const end = figures.listen(() => {
    const policy = known();
    problem.show(policy ? null : { message: `There is no policy ${name}.` });
    if (policy) {
      setText(about, `${quotaText(policy.quota, policy.unit)}${policy.overrides ? ` and ${count(policy.overrides, "override")}` : ""}, ${policy.algorithm.replaceAll("_", " ")}, a bucket ${bucketText(policy.key)}, in ${storeText(policy)}${BEYOND[policy.on_limit] ?? ""}`);
      setText(verdict, verdictText(policy));
      showLines(changes, figures.events.changesOf(name).map((change) => `${capital(changeText(change))}.`));
      setText(mode, capital(modeText(policy.mode)));
      hide(back, policy.mode.set_at === null, change);
      inShadow.hidden = !policy.shadow;
      shadowed.fill((policy.shadow?.most_limited ?? []).map(({ key_id: id, requests }) => ({ key: id, cells: [id, number(requests)] })), "No client so far.");
      decisions.show(policy.recent, policy.decisions, FATES[policy.on_store_error]);
      showFigures(parts, policy);
      setText(routes, policy.routes.map((route) => route || "requests without a route").join(", "));
      limited.node.hidden = policy.mode.current !== "enforce" && policy.decisions.limited === 0;
      spenders.node.hidden = policy.settled_units === null;
      ends ??= [repeat(lookAtOthers, PERIOD), past.begin(), limited.begin(), ...(policy.settled_units === null ? [] : [spenders.begin(policy.unit)])];
    }
  });
  return () => {
    end();
    ends?.forEach((one) => one());
  };
}

/** The counts of clients that are limited most. */
export const LIMITED = ["limited", "since"];

/** The first clients of /v1/top, asked for again and again from `begin` on. */
export function whoSection(session, title, caption, counts, query, ...below) {
  const who = topTable(session, caption, counts);
  const begin = (unit) => repeat(async () => who.fill(await session.get(`/v1/top?limit=${MOST_CLIENTS}&${query}`), unit), PERIOD);
  return { node: section(title, who.node, ...below), begin };
}

function showFigures(parts, policy) {
  const isElsewhere = policy.store === "redis";
  parts.keys.show(keysText(policy), isElsewhere ? "not counted here" : `with a bucket now, room for ${number(policy.buckets.capacity)}`);
  const nearRequests = `${count(policy.near, "request")} since the start left 20\u00a0% or less`;
  parts.near.show(isElsewhere ? "in Redis" : number(policy.buckets.near), isElsewhere ? nearRequests : `keys now have 20\u00a0% or less left; ${nearRequests}`);
  parts.memory.show(...memoryTexts(policy));
  parts.spent.node.hidden = policy.settled_units === null;
  parts.spent.show(amount(policy.settled_units ?? 0, policy.unit));
  parts.bans.show(number(policy.banned_keys), policy.bans === null ? "keys now; the policy has no penalty" : `keys now; ${count(policy.bans, "ban")} by the penalty since the start`);
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
function verdictText({ mode, decisions, shadow, on_store_error: on }) {
  const decided = SHOWN.reduce((sum, decision) => sum + decisions[decision], 0);
  if (decided === 0) {
    return "No request has met this policy since the start.";
  }
  const isTrial = mode.current === "shadow" || decisions.shadowed > decisions.limited;
  const clients = shadow && `${number(shadow.limited_clients)} of ${count(shadow.clients, "client")}`;
  const others = decisions.error > 0 ? ` ${number(decisions.error)} ${undecided(on)} without the store.` : "";
  const requests = (some) => `${percent(some / decided)} of requests, ${number(some)} of ${number(decided)}`;
  if (isTrial) {
    // A request that another policy refuses is not counted: this is what enforcing would change.
    return `Would have limited or delayed ${requests(decisions.shadowed)}${clients ? `, and ${clients}` : ""}, since the start.${others}`;
  }
  const besides = clients ? ` In shadow it would have limited ${clients}.` : "";
  return `Limited ${requests(decisions.limited)}, since the start.${others}${besides}`;
}

function showLines(list, lines) {
  if (list.textContent !== lines.join("")) {
    list.replaceChildren(...lines.map((line) => element("li", {}, line)));
  }
}
