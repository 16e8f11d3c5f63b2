// The form that asks for a token.

import { element, field, setText } from "../dom.js";

/** Shows the form in `main`; `entered` is called once a token is accepted. */
export function showLogin(main, session, entered, reason = "") {
  const input = element("input", { id: "token", type: "password", autocomplete: "off", required: true, size: 44 });
  const problem = element("p", { class: "problem", role: "alert" }, reason);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await session.begin(input.value.trim());
      entered();
    } catch (error) {
      setText(problem, error.status === 401 ? "The server does not know this token." : error.message);
      input.select();
    }
  };
  const form = element(
    "form",
    { class: "login", onsubmit: submit },
    element("h1", {}, "Sign in"),
    field("Token", input),
    element("p", { class: "small soft" }, "One of admin.tokens in the configuration. None set? The log of the start names a file that has one. This tab keeps it until it is closed."),
    problem,
    element("button", { class: "primary" }, "Sign in"),
  );
  main.replaceChildren(form);
  input.focus();
}
