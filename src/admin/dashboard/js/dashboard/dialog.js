// Dialogs: Escape closes them, and the focus returns to where it was.

import { button, byId, element, field, select, setText } from "../dom.js";

/** Shows a dialog. `closed` is called at its end. */
export function modal(title, content, closed = () => {}) {
  const giveFocusBack = focusAfterwards();
  const dialog = element("dialog", { "aria-label": title }, content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    giveFocusBack();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for confirmation. `fields` are inputs by name, each with its node. `preview` answers with nodes
 * for the values so far, or throws a problem; only after it can the change be made, by `apply`. Answers
 * with the result of `apply`, or null if nothing changed.
 */
export function confirmChange({ title, text, fields, action, preview, apply }) {
  const problem = element("p", { class: "problem", role: "alert" });
  const shown = element("div", { class: "preview", "aria-live": "polite" });
  const yes = element("button", { class: "primary", disabled: true }, action);
  const no = button("Cancel", () => dialog.close());
  const form = element("form", { method: "dialog" }, element("h2", {}, title), element("p", { class: "soft" }, text), ...Object.values(fields).map(({ node }) => node), shown, problem, element("div", { class: "row" }, yes, no));
  const values = () => Object.fromEntries(Object.entries(fields).map(([name, { input }]) => [name, input.value.trim()]));
  // A look that ends after a newer one, or after the form is sent, shows nothing.
  let newest = 0;
  const look = async () => {
    const number = (newest += 1);
    const [nodes, failure] = await preview(values()).then((found) => [found, null], (error) => [[], error]);
    if (number === newest) {
      shown.replaceChildren(...nodes);
      setText(problem, failure?.message ?? "");
      yes.disabled = failure !== null;
    }
  };
  form.addEventListener("change", look);
  const { promise, resolve } = Promise.withResolvers();
  let result = null;
  const dialog = modal(title, form, () => resolve(result));
  Object.values(fields)[0]?.input.select?.();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    newest += 1;
    yes.disabled = true;
    try {
      result = await apply(values());
      dialog.close();
    } catch (error) {
      setText(problem, error.message);
      yes.disabled = false;
    }
  });
  look();
  return promise;
}

/**
 * Gives the focus back to the button that has it now; if that is gone, to the button in its place,
 * or to the table or card around it.
 */
function focusAfterwards() {
  const opener = document.activeElement;
  const [cell, around] = [opener?.closest("td"), opener?.closest(".scroll, .card")];
  return () => {
    const places = [opener, cell?.querySelector("button"), around, byId("main")];
    places.some((place) => {
      place?.focus({ preventScroll: true });
      return place && document.activeElement === place;
    });
  };
}

/** A labelled input for `confirmChange`. */
export function textField(label, attributes) {
  const input = element("input", attributes);
  return { input, node: field(label, input) };
}

/** A labelled choice for `confirmChange`. */
export function choiceField(label, texts, chosen) {
  const input = select(texts, chosen);
  return { input, node: field(label, input) };
}
