// A dialog that asks before something changes, and shows beforehand what would.

import { byId, element, setText } from "../dom.js";

/**
 * Asks for confirmation. `fields` are inputs by name. `preview` answers with nodes for the values so
 * far, or throws a problem; `apply` makes the change. Answers with the result of `apply`, or null if
 * nothing changed.
 */
export function confirmChange({ title, text, fields, action, preview, apply }) {
  const problem = element("p", { class: "problem", role: "alert" });
  const shown = element("div", { class: "preview" });
  const yes = element("button", { class: "primary", value: "yes" }, action);
  const no = element("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const form = element("form", { method: "dialog" }, element("h2", {}, title), element("p", { class: "soft" }, text), ...Object.values(fields).map(({ node }) => node), shown, problem, element("div", { class: "row" }, yes, no));
  const dialog = element("dialog", { "aria-label": title }, form);
  const values = () => Object.fromEntries(Object.entries(fields).map(([name, { input }]) => [name, input.value.trim()]));
  // A look that ends after a newer one, or after the form is sent, shows nothing.
  let newest = 0;
  const look = async () => {
    const number = (newest += 1);
    try {
      const looked = await preview(values());
      if (number !== newest) {
        return;
      }
      shown.replaceChildren(...looked);
      setText(problem, "");
      yes.disabled = false;
    } catch (error) {
      if (number !== newest) {
        return;
      }
      shown.replaceChildren();
      setText(problem, error.message);
      yes.disabled = true;
    }
  };
  form.addEventListener("change", look);
  const giveFocusBack = focusAfterwards();
  document.body.append(dialog);
  dialog.showModal();
  Object.values(fields)[0]?.input.select?.();
  look();
  return new Promise((resolve) => {
    let result = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      newest += 1;
      yes.disabled = true;
      try {
        result = (await apply(values())) ?? {};
        dialog.close();
      } catch (error) {
        setText(problem, error.message);
        yes.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      giveFocusBack();
      resolve(result);
    });
  });
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
  return { input, node: element("label", { class: "field" }, label, input) };
}

/** The reason of a change, for the audit log. */
export function reasonField() {
  return textField("Reason, for the audit log", { maxlength: 200, size: 44 });
}
