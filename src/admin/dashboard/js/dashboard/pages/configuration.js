// The running configuration, a comparison with a pasted one, and the last reloads.

import { element, setText } from "../../dom.js";
import { instant } from "../../format.js";
import { compareLines } from "../diff.js";
import { problemLine, section, table } from "../parts.js";

export const TITLE = "Configuration";

export function show(main, { session }) {
  const problem = problemLine();
  const about = element("p", { class: "soft" });
  const text = element("pre", { class: "code text", tabindex: "0", "aria-label": "Running configuration" });
  const pasted = element("textarea", { id: "pasted", class: "code", rows: 10, spellcheck: "false" });
  const result = element("div", { class: "stack" });
  const reloads = table("The last reloads, newest first", [["At"], ["Result"], ["Hash"], ["Error or warnings"], ["Buckets"]]);
  let running = "";
  const compare = async () => {
    try {
      const found = await session.post("/v1/check", { text: pasted.value });
      result.replaceChildren(...checked(found), difference(running, pasted.value));
    } catch (error) {
      result.replaceChildren(element("p", { class: "problem" }, error.message));
    }
  };
  main.append(
    element("h1", {}, TITLE),
    about,
    problem.node,
    section("Running", text),
    section(
      "Compare with another",
      element("label", { class: "field" }, "Paste a configuration: it is checked, and nothing changes", pasted),
      element("button", { type: "button", onclick: compare }, "Check and compare"),
      result,
    ),
    section("Reloads", reloads.node),
  );
  load(session, { about, text, reloads }).then(
    (loaded) => {
      running = loaded;
    },
    (error) => problem.show(error),
  );
}

async function load(session, { about, text, reloads }) {
  const [config, history] = await Promise.all([session.get("/v1/config"), session.get("/v1/reloads")]);
  setText(about, aboutText(config));
  setText(text, config.text);
  reloads.fill(history.reloads.map(row), "None since the start.");
  return config.text;
}

function aboutText({ source, hash, loaded_at: at, last_error: error, reset }) {
  const base = `${source}, loaded ${instant(at)}, hash ${hash}. Secrets are masked.`;
  const changed = reset.length ? ` The last reload changed buckets of ${reset.map(({ policy }) => policy).join(", ")}.` : "";
  return error ? `${base} The last reload failed: ${error}` : base + changed;
}

function row({ at, result, hash, error, buckets, warnings }) {
  const changes = buckets.map(({ policy, outcome, detail }) => `${policy} ${outcome}${detail ? ` (${detail})` : ""}`);
  return [instant(at), element("span", { class: `result ${result}` }, result), hash ?? "–", error ?? (warnings.join("; ") || "–"), changes.join(", ") || "all survive"];
}

function checked({ findings, buckets = [] }) {
  const list = findings.map(({ severity, line, message, help }) =>
    element("li", { class: severity }, element("b", {}, line ? `Line ${line}, ${severity}: ` : `${severity}: `), message, help ? element("span", { class: "soft" }, ` – ${help}`) : null),
  );
  const changes = (buckets ?? []).map(({ policy, outcome, detail }) => element("li", {}, element("b", {}, `${policy}: `), outcome, detail ? `, ${detail}` : ""));
  return [
    element("h3", {}, findings.length ? "Findings" : "No findings: the text is sound"),
    element("ul", { class: "plain findings" }, ...list),
    changes.length ? element("h3", {}, "Buckets after a reload") : null,
    changes.length ? element("ul", { class: "plain" }, ...changes) : null,
  ].filter(Boolean);
}

function difference(running, pasted) {
  const lines = compareLines(running, pasted);
  if (lines === null) {
    return element("p", { class: "soft" }, "The texts are too long to compare here.");
  }
  const changed = lines.filter(({ sign }) => sign !== " ").length;
  const rows = lines.map(({ sign, line }) => element("span", { class: { "+": "added", "-": "removed", " ": "same" }[sign] }, `${sign} ${line}\n`));
  return element("div", {}, element("h3", {}, changed ? "Difference from the running text" : "No difference"), changed ? element("pre", { class: "code text", tabindex: "0" }, ...rows) : null);
}
