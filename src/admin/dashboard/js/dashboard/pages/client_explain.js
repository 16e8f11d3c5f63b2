// A form that asks what becomes of one request now, over all policies, and why.

import { button, copy, element, field, select, setText } from "../../dom.js";
import { NO_COPY, problemLine, section } from "../parts.js";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/** The form; `suggest` fills in what parts of keys and their values say, where nothing is written yet. */
export function createExplain(session) {
  const method = select(Object.fromEntries(METHODS.map((name) => [name, name])));
  const url = element("input", { type: "url", required: true, size: 36, placeholder: "http://api.example.com/v1/search", autocomplete: "off" });
  const fields = element("textarea", { rows: 2, cols: 30, spellcheck: "false", autocomplete: "off", placeholder: "x-api-key: alice" });
  const from = element("input", { size: 16, placeholder: "127.0.0.1", autocomplete: "off", spellcheck: "false" });
  const client = element("input", { size: 14, placeholder: "acme", autocomplete: "off", spellcheck: "false" });
  const problem = problemLine();
  const verdict = element("p", { class: "verdict", role: "status" });
  const doubt = element("p", { class: "notice", hidden: true });
  const text = element("pre", { class: "code text", tabindex: "0", "aria-label": "Explanation" });
  const said = element("span", { class: "small soft", role: "status" });
  const result = element("div", { class: "stack", hidden: true }, verdict, doubt, text, element("div", { class: "row" }, button("Copy", () => copy(text.textContent, said, "Copied.", NO_COPY)), said));
  const ask = async (event) => {
    event.preventDefault();
    setText(said, "");
    try {
      const request = { method: method.value, url: url.value.trim(), headers: readFields(fields.value), from: from.value.trim() || null, client: client.value || null };
      const { text: explanation, client: who } = await session.post("/v1/explain", request);
      const without = /^(none: )?((?:the key|the request|several) .*)/.exec(who ?? "")?.[2];
      setText(verdict, `At this instant: ${/\nanswer +(.*)\n$/.exec(explanation)?.[1]}.`);
      setText(doubt, without ? `This is the answer for no known client: ${without}. Write the key that the client sends, or its name under Client.` : "");
      doubt.hidden = !without;
      setText(text, explanation);
      result.hidden = false;
      problem.show(null);
    } catch (error) {
      result.hidden = true;
      problem.show(error);
    }
  };
  const form = element(
    "form",
    { class: "row search", onsubmit: ask },
    field("Method", method),
    field("URL", url),
    field("Client", client),
    field("Header lines", fields),
    field("From address", from),
    element("button", { class: "primary" }, "Explain"),
  );
  const about = element("p", { class: "small soft" }, "Which policies a request meets now, what each decides, and why. Nothing is charged, and the answer repeats no key.");
  return {
    node: section("Explain a request", about, form, problem.node, result),
    suggest(values) {
      const texts = values.filter(([, value]) => typeof value === "string");
      const of = (name) => texts.find(([part]) => part.split("/")[0] === name)?.[1] ?? "";
      const lines = texts.filter(([part]) => part.startsWith("header:")).map(([part, value]) => `${part.slice("header:".length)}: ${value}`);
      suggestText(fields, [...new Set(lines)].join("\n"));
      suggestText(from, of("client_ip"));
      suggestText(client, of("client"));
      result.hidden = true;
    },
  };
}

/** A text that a person has written stays. */
function suggestText(input, text) {
  if (input.value === (input.dataset.suggested ?? "")) {
    input.value = text;
    input.dataset.suggested = text;
  }
}

/** Names and values, whose spaces around them the server leaves out. */
function readFields(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return lines.map((line) => {
    const [, name, value] = /^([^:]+):(.*)$/.exec(line) ?? [];
    if (name === undefined) {
      throw new Error("A header line is a name, a colon and a value, such as x-api-key: alice.");
    }
    return [name, value];
  });
}
