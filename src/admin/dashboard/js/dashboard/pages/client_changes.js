// Changes of one key: each is tried as a dry run first, and asks for a reason.

import { element } from "../../dom.js";
import { instant, number, units } from "../../format.js";
import { confirmChange, reasonField, textField } from "../dialog.js";
import { byText, keyText, verdict } from "./client_text.js";

/** Makes the bucket whole. */
export function reset(session, subject) {
  return change(session, subject, {
    path: "/v1/keys/reset",
    title: `Reset ${name(subject)}`,
    text: "Makes the bucket whole, as if the client had not come.",
    action: "Reset",
    fields: {},
    body: () => ({}),
    advice: ({ before }) => banAdvice(session, subject, before),
  });
}

/** Grants units beyond the quota. */
export function grant(session, subject) {
  return change(session, subject, {
    path: "/v1/keys/grant",
    title: `Grant units to ${name(subject)}`,
    text: "Spendable at once, also above the capacity of the bucket.",
    action: "Grant",
    fields: {
      units: textField("Units", { type: "number", min: 1, value: 100, required: true }),
      duration: textField("For (15m, 24h, 7d)", { value: "1h", required: true, size: 8 }),
    },
    body: ({ units, duration }) => ({ units: Number(units), for: duration }),
    advice: ({ before }) => banAdvice(session, subject, before),
  });
}

/** Refuses the client for a while. */
export function ban(session, subject) {
  return change(session, subject, {
    path: "/v1/keys/ban",
    title: `Ban ${name(subject)}`,
    text: "Every request of the client is refused until the ban ends.",
    action: "Ban",
    fields: { duration: textField("For (15m, 24h, 7d)", { value: "15m", required: true, size: 8 }), scope: scopeField(subject) },
    body: ({ duration, scope }) => ({ for: duration, all_policies: scope === "all" }),
  });
}

/** Ends a ban. */
export function unban(session, subject) {
  return change(session, subject, {
    path: "/v1/keys/unban",
    title: `Unban ${name(subject)}`,
    text: "The bucket decides about the client again.",
    action: "Unban",
    fields: { scope: scopeField(subject) },
    body: ({ scope }) => ({ all_policies: scope === "all" }),
  });
}

/** The policies in which a client is banned. */
function scopeField({ policy }) {
  const options = { one: `${policy} only`, all: "all policies with this key" };
  const input = element("select", {}, ...Object.entries(options).map(([value, text]) => element("option", { value }, text)));
  return { input, node: element("label", { class: "field" }, "In", input) };
}

function name({ key, policy }) {
  return `${keyText(key)} on ${policy}`;
}

/** Another bucket changes nothing while the client is banned. */
function banAdvice(session, subject, { ban: one }) {
  if (!one) {
    return [];
  }
  const instead = ({ target }) => {
    target.closest("dialog").close();
    unban(session, subject);
  };
  return [
    element("p", { class: "notice" }, `The ban remains until ${instant(one.until)}: use Unban.`),
    element("button", { type: "button", onclick: instead }, "Unban …"),
  ];
}

function change(session, { policy, key }, { path, body, fields, advice = () => [], ...texts }) {
  const send = (values, isDry) => {
    const reason = values.reason ? { reason: values.reason } : {};
    return session.post(path, { policy, key, ...body(values), ...reason, dry_run: isDry });
  };
  return confirmChange({
    ...texts,
    fields: { ...fields, reason: reasonField() },
    preview: async (values) => {
      const states = await send(values, true);
      return [...describe(states), ...notes(states), ...advice(states)];
    },
    apply: (values) => send(values, false),
  });
}

/** What the change replaces, and the other policies in which it is made. */
function notes({ note, also }) {
  const others = also.length ? `Also in ${also.map(({ policy }) => policy).join(", ")}.` : null;
  return [note && `Note: ${note}.`, others].filter(Boolean).map((text) => element("p", { class: "small" }, text));
}

/** The states before and after, side by side, as the dry run tells them. */
function describe({ before, after }) {
  const row = (name, value) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value(before)), element("td", {}, value(after)));
  const head = element("tr", {}, element("td"), element("th", { scope: "col" }, "Now"), element("th", { scope: "col" }, "After"));
  return [
    element("table", {}, head, row("Left", (state) => leftText(state)), row("Next request", (state) => verdict(state)), row("Ban", banText)),
  ];
}

function leftText({ remaining, granted, unit }) {
  const extra = granted ? `, and ${number(granted.units)} granted until ${instant(granted.until)}` : "";
  return `${units(remaining, unit)}${extra}`;
}

function banText({ ban: one }) {
  return one ? `until ${instant(one.until)}${byText(one)}` : "none";
}
