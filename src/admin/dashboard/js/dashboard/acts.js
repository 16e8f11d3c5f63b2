// What operators can change. Each change is tried as a dry run first, asks for a reason, and says
// afterwards how it is undone.

import { button, byId, element } from "../dom.js";
import { capital, instant, number, timeOfDay, units } from "../format.js";
import { choiceField, confirmChange, textField } from "./dialog.js";
import { byText, keyText } from "./pages/client_text.js";

/** How the API takes values of fields that are no texts there. */
const VALUES = { units: Number, all_policies: (scope) => scope === "all", reason: (text) => text || null };

/**
 * Asks for a change, tries it and makes it. A change has the `path` and `body` of its request, `fields`
 * whose values join the body, `rows` of an answer with what is there now and after, and `undo`, the change
 * that undoes an answer, if there is one. Answers with null if nothing changed.
 */
async function act(session, change) {
  const { path, body, rows, advice = () => [], undo = () => null } = change;
  const send = (fields, isDry) => {
    const values = Object.entries(fields).map(([name, text]) => [name, name in VALUES ? VALUES[name](text) : text]);
    return session.post(path, { ...body, ...Object.fromEntries(values), dry_run: isDry });
  };
  const answer = await confirmChange({
    ...change,
    fields: { ...change.fields, reason: textField("Reason, for the audit log", { maxlength: 200, size: 44 }) },
    preview: async (fields) => {
      const found = await send(fields, true);
      return [comparison(rows(found)), ...remarks(found), ...advice(session, found)];
    },
    apply: (fields) => send(fields, false),
  });
  if (answer) {
    tell(session, change.title, remarks(answer), undo(answer));
  }
  return answer;
}

/** A button for a change. `made` is called after it. */
export function actButton(session, text, change, made = () => {}, attributes = {}) {
  const ask = async () => (await act(session, change)) && made();
  return button(`${text}\u00a0…`, ask, { "aria-label": change.title, ...attributes });
}

/** The line that says above every page what was done last, with a button that undoes it. */
function tell(session, title, said, undo) {
  const place = byId("done");
  const close = () => {
    place.replaceChildren();
    byId("main").focus();
  };
  const way = undo && actButton(session, "Undo", undo, () => {}, { "aria-label": `Undo: ${undo.title}` });
  const hadFocus = place.contains(document.activeElement);
  const nodes = [element("b", {}, `${title}: done at ${timeOfDay(new Date())}.`), ...said, way, button("Close", close, { class: "quiet" })];
  place.replaceChildren(...nodes.filter(Boolean));
  if (hadFocus) {
    place.querySelector("button").focus();
  }
}

/** What is there now and after a change, side by side. */
function comparison(rows) {
  const row = ([name, ...texts], cell) => element("tr", {}, element(name ? "th" : "td", { scope: name ? "row" : null }, name), ...texts.map(cell));
  const head = row(["", "Now", "After"], (text) => element("th", { scope: "col" }, text));
  return element("table", {}, head, ...rows.map((texts) => row(texts, (text) => element("td", {}, text))));
}

/** What a change means for requests, what it replaces, and the other policies in which it is made. */
function remarks({ effect = [], note = null, also = [] }) {
  const others = also.length ? `Also in ${also.map(({ policy }) => policy).join(", ")}.` : null;
  const texts = [...effect.map((text) => `${capital(text)}.`), note && `Note: ${note}.`, others];
  return texts.filter(Boolean).map((text) => element("p", { class: "small" }, text));
}

/** Makes the bucket full. */
export function reset(subject) {
  return keyChange("reset", subject, "Reset", "Makes the bucket full, as if the client had not come.", {
    fields: scopeField(subject),
    advice: banAdvice(subject),
  });
}

/** Grants units beyond the quota. */
export function grant(subject) {
  return keyChange("grant", subject, "Grant", "Spendable at once, also above the capacity of the bucket.", {
    fields: { units: textField("Units", { type: "number", min: 1, value: 100, required: true }), for: lengthField("1h") },
    advice: banAdvice(subject),
    undo: () => takeBack(subject),
  });
}

/** Takes a grant back. */
export function takeBack(subject) {
  return keyChange("grant", { ...subject, units: 0 }, "Take back the grant", NO_GRANT);
}

/** Refuses the client for a while. */
export function ban(subject) {
  return keyChange("ban", subject, "Ban", "Every request of the client is refused until the ban ends, unless the policy is in shadow.", {
    fields: { for: lengthField("15m"), ...scopeField(subject) },
    undo: ({ also = [] }) => unban(subject, also.length ? "all" : "one"),
  });
}

/** Ends a ban. */
export function unban(subject, scope) {
  return keyChange("unban", subject, "Unban", NO_BAN, { fields: scopeField(subject, scope) });
}

const NO_GRANT = "What is left of the grant can’t be spent any more.";
const NO_BAN = "The policy’s bucket decides about the client again.";

/** A change of a key, which has these as its body; `details` are what this one has beside a reason. */
function keyChange(name, { policy, key, units: some }, action, text, details = {}) {
  const facts = { Left: leftText, "Next request": ({ verdict }) => verdict, Ban: banText };
  const rows = ({ before, after }) => Object.entries(facts).map(([fact, of]) => [fact, of(before), of(after)]);
  const title = `${action} ${some === 0 ? "of " : ""}${keyText(key)} on ${policy}`;
  return { path: `/v1/keys/${name}`, body: { policy, key, units: some }, title, text, action, rows, ...details };
}

/** Ends a ban or a grant in the list of them. */
export function revoke({ policy, id, what, until }) {
  const [action, text] = what === "ban" ? ["Lift", NO_BAN] : ["Take back", NO_GRANT];
  const title = `${action} the ${what} of ${id} on ${policy}`;
  return { path: "/v1/keys/revoke", body: { policy, id, what }, title, text, action, rows: () => [["Ends", instant(until), "at once"]] };
}

const MODES = { enforce: "enforce", shadow: "shadow", disabled: "disabled", configured: "as configured" };

/** Sets the mode of a policy; `wanted` is suggested. */
export function setMode({ name, mode: { current, set_at: setAt } }, wanted = setAt === null ? current : "configured") {
  return {
    path: `/v1/policies/${encodeURIComponent(name)}/mode`,
    title: `Set the mode of ${name}`,
    text: "Until the configuration changes, for all keys of this proxy. Shadow decides and counts without limiting.",
    action: "Set the mode",
    fields: { mode: choiceField("Mode", MODES, wanted) },
    rows: ({ before, mode }) => [["Mode", before, mode.current]],
    undo: ({ mode }) => setMode({ name, mode }, setAt === null ? "configured" : current),
  };
}

/** Begins to drain an endpoint, or ends that. */
export function drain(upstream, endpoint, isDrained) {
  const [action, text] = isDrained
    ? ["Drain", "New requests go elsewhere; those in flight end. This holds until it is undone, or a restart."]
    : ["End draining", "The endpoint gets requests again."];
  return endpointChange("drain", upstream, endpoint, action, text, {
    body: { drain: isDrained },
    rows: ({ draining, changed }) => [["Draining", ...[draining !== changed, draining].map((is) => (is ? "yes" : "no"))]],
    undo: ({ changed }) => (changed ? drain(upstream, endpoint, !isDrained) : null),
  });
}

/** Ends the ejections of an endpoint's addresses. */
export function readmit(upstream, endpoint) {
  return endpointChange("readmit", upstream, endpoint, "Readmit", "Its ejection ends now, and it gets requests again. If it still fails, it is ejected again.", {
    rows: ({ readmitted }) => readmitted.map((address) => [address, "ejected", "gets requests"]),
  });
}

function endpointChange(name, upstream, endpoint, action, text, details) {
  const path = `/v1/upstreams/${encodeURIComponent(upstream)}/endpoints/${encodeURIComponent(endpoint)}/${name}`;
  return { path, title: `${action} ${endpoint} of ${upstream}`, text, action, ...details };
}

function lengthField(value) {
  return textField("For (15m, 24h, 7d)", { value, required: true, size: 8 });
}

/** Chooses between one policy and all of the client. */
function scopeField({ policy }, chosen = "one") {
  return { all_policies: choiceField("In", { one: `${policy} only`, all: "all policies with this key" }, chosen) };
}

/** Another bucket changes nothing while the client is banned. */
function banAdvice(subject) {
  return (session, { before: { ban: one } }) => {
    const instead = ({ target }) => {
      target.closest("dialog").close();
      act(session, unban(subject));
    };
    return one ? [element("p", { class: "notice" }, `The ban remains until ${instant(one.until)}: use Unban.`), button("Unban …", instead)] : [];
  };
}

function leftText({ remaining, granted, unit }) {
  const extra = granted ? `, and ${number(granted.units)} granted until ${instant(granted.until)}` : "";
  return `${units(remaining, unit)}${extra}`;
}

function banText({ ban: one }) {
  return one ? `until ${instant(one.until)}${byText(one)}` : "none";
}
