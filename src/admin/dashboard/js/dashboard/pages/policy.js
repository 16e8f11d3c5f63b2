// One policy: its settings, its figures, its past, its mode, and whom it limits.

import { element, put } from "../../dom.js";
import { amount, capital, count, number, percent, quotaText, rate, size } from "../../format.js";
import { actButton, setMode } from "../acts.js";
import { changeText } from "../events.js";
import { figure, mark, repeat, section, SHOWN, table } from "../parts.js";
import { pastChart } from "../past.js";
import { href } from "../router.js";
import { bucketText } from "./client_text.js";
import { firstClients } from "./offenders.js";

const PERIOD = 3_500;

/** What becomes of requests beyond the quota, unless they are refused. */
const BEYOND = {
  decoy: "; what it limits is answered as if it had passed",
  tarpit: "; what it limits is refused slowly",
  drop: "; what it limits gets no answer",
  tag: "; what it limits passes with a tag",
  route: "; what it limits goes to another upstream",
  wait: "; what it limits waits for units",
};

export function showOne(main, context, name) {
  const { session, figures } = context;
  const head = [element("p", { class: "small" }, element("a", { href: href("policies") }, "All policies")), element("h1", {}, name)];
  const past = pastChart(context, name);
  const pastSection = section("Decisions per second", past.node, legend());
  const overrides = overrideSection(session, name);
  const first = ["limited", "units"].map((by) => firstClients(session, by, name));
  let ends = null;
  const end = figures.listen(({ policies, events }) => {
    const policy = policies.find((one) => one.name === name);
    if (!policy) {
      put(main, ...head, element("p", { class: "problem", role: "alert" }, `There is no policy ${name}.`));
      return;
    }
    first.forEach(({ show }) => show(policy));
    put(
      main,
      ...head,
      element("p", { class: "soft" }, aboutText(policy)),
      element("p", { class: "verdict" }, verdictText(policy)),
      element("ul", { class: "plain" }, events.changesOf(name).map((change) => element("li", {}, `${capital(changeText(change))}.`))),
      element("dl", { class: "figures" }, figuresOf(policy).map((texts) => figure(...texts))),
      pastSection,
      section("Mode", element("p", {}, capital(modeText(policy.mode))), modeButtons(context, policy)),
      overrides.node,
      ...first.map(({ node }) => node),
      shadowSection(policy),
      section("Used by", element("p", {}, policy.routes.map((route) => route || "requests without a route").join(", "))),
    );
    ends ??= [past, overrides, ...first].map(({ begin }) => begin());
  });
  return () => [end, ...(ends ?? [])].forEach((one) => one());
}

function aboutText({ quota, unit, overrides, algorithm, key, store, sync_s: sync, on_limit: beyond }) {
  const others = overrides ? ` and ${count(overrides, "override")}` : "";
  const place = sync === null ? store : `memory, synchronised every ${number(sync * 1_000)}\u00a0ms`;
  return `${quotaText(quota, unit)}${others}, ${algorithm.replaceAll("_", " ")}, a bucket ${bucketText(key)}, in ${place}${BEYOND[beyond] ?? ""}`;
}

/** What a policy did, or would have done in shadow, since the start. */
function verdictText(policy) {
  const { mode, decisions, shadow } = policy;
  const decided = totalOf(decisions);
  if (decided === 0) {
    return "No request has met this policy since the start.";
  }
  const isTrial = mode.current === "shadow" || decisions.shadowed > decisions.limited;
  const clients = shadow && `${number(shadow.limited_clients)} of ${count(shadow.clients, "client")}`;
  const others = decisions.error > 0 ? ` ${number(decisions.error)} ${undecided(policy)} without the store.` : "";
  const requests = (some) => `${percent(some / decided)} of requests, ${number(some)} of ${number(decided)}`;
  if (isTrial) {
    // A request that another policy refuses is not counted: this is what enforcing would change.
    return `Would have limited or delayed ${requests(decisions.shadowed)}${clients ? `, and ${clients}` : ""}, since the start.${others}`;
  }
  const besides = clients ? ` In shadow it would have limited ${clients}.` : "";
  return `Limited ${requests(decisions.limited)}, since the start.${others}${besides}`;
}

/** The sum of all decisions; NaN while they are unknown. */
export function totalOf(decisions) {
  return SHOWN.reduce((sum, decision) => sum + (decisions?.[decision] ?? NaN), 0);
}

/** What becomes of requests that the store can't decide. */
const FATES = { admit: "admitted", refuse: "refused" };

/** The word for such requests. */
export function undecided({ on_store_error: on }) {
  return ["undecided", FATES[on]].filter(Boolean).join(": ");
}

const wordFor = (decision) => (decision === "error" ? "undecided" : decision);

function legend() {
  return element("ul", { class: "plain row legend small" }, SHOWN.map((decision) => element("li", {}, mark(decision), wordFor(decision))));
}

/** Decisions that have a figure before the first one was made. */
const COMMON = ["allowed", "delayed", "limited", "shadowed"];

/** The figures: label, value and span. */
function figuresOf(policy) {
  const { recent, decisions, on_store_error: on, store, buckets, near, settled_units: spent, banned_keys: banned, bans } = policy;
  const rare = SHOWN.filter((decision) => !COMMON.includes(decision) && decisions[decision] > 0);
  const fate = (decision) => (decision === "error" && FATES[on] ? `${FATES[on]} without the store; ` : "");
  const isInRedis = store === "redis";
  const nearRequests = `${count(near, "request")} since the start left 20\u00a0% or less`;
  const penalty = bans === null ? "the policy has no penalty" : `${count(bans, "ban")} by the penalty since the start`;
  // Buckets in Redis take some memory here, for when it does not answer.
  const memory = `of ${isInRedis ? "local " : ""}buckets now, at most ${size(buckets.max_bytes)}`;
  return [
    ...[...COMMON, ...rare].map((one) => [capital(wordFor(one)), rate(recent?.[one]), `${fate(one)}requests per second, last 10 to 20\u00a0s`]),
    ["Keys", keysText(policy), isInRedis ? "not counted here" : `with a bucket now, room for ${number(buckets.capacity)}`],
    ["Near the quota", ...(isInRedis ? ["in Redis", nearRequests] : [number(buckets.near), `keys now have 20\u00a0% or less left; ${nearRequests}`])],
    ["Memory", ...(buckets.max_bytes === 0 ? ["–", "only requests in flight take some"] : [size(buckets.bytes), memory])],
    ["Banned", number(banned), `keys now; ${penalty}`],
    ...(spent === null ? [] : [["Spent", amount(spent, policy.unit), "since the start, as responses say"]]),
  ];
}

/** The number of a policy's keys with a bucket; Redis is not asked how many it has. */
export function keysText({ store, buckets }) {
  return store === "redis" ? "in Redis" : number(buckets.in_use);
}

/** A button that sets the mode. For another mode it is another button: one that is equal would stay. */
export function modeButton({ session, figures }, policy, text, wanted, attributes) {
  const { current, set_at: setAt } = policy.mode;
  const made = () => figures.refresh();
  return actButton(session, text, setMode(policy, wanted), made, { "data-mode": `${current} ${setAt}`, ...attributes });
}

function modeButtons(context, policy) {
  const set = (text, wanted) => modeButton(context, policy, text, wanted, { "aria-label": null });
  const back = policy.mode.set_at === null ? null : set("Back to the configured mode");
  return element("div", { class: "row" }, set("Change the mode", policy.mode.current), back);
}

export function modeText({ current, configured, percent: part }) {
  const share = part === null ? "" : ` for ${part}\u00a0% of keys`;
  return current === configured ? `${current}${share}` : `${current} until the configuration changes, configured: ${configured}`;
}

/** The first overrides of the quota, and how many more there are. */
function overrideSection(session, name) {
  const shown = table("Overrides of the quota", [
    ["Requests", ({ requests }) => requests],
    ["Quota", ({ quota, unit }) => (quota === null ? "the policy’s" : quotaText(quota, unit))],
    ["Mode", ({ mode }) => mode ?? "the policy’s"],
  ], ({ place }) => place);
  const node = section("Overrides", shown.node);
  node.hidden = true;
  const look = async () => {
    const { first_overrides: first, overrides, unit } = await session.get(`/v1/policies/${encodeURIComponent(name)}`);
    const more = overrides > first.length ? [{ requests: `${number(overrides - first.length)} more in the configuration`, quota: "", mode: "" }] : [];
    node.hidden = overrides === 0;
    shown.fill([...first, ...more].map((one, place) => ({ ...one, place, unit })));
  };
  return { node, begin: () => repeat(look, PERIOD) };
}

function shadowSection({ shadow }) {
  const clients = table("Clients that would have been limited most", [
    ["Name in logs", ({ key_id: id }) => id],
    ["Requests since the start that it would have limited", ({ requests }) => number(requests), "number"],
  ], ({ key_id: id }) => id);
  clients.fill(shadow?.most_limited ?? [], "No client so far.");
  const node = section("Would have limited most, while in shadow", clients.node);
  node.hidden = !shadow;
  return node;
}
