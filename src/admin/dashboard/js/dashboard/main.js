// The dashboard: signs in, shows the page of the address, and keeps the figures that all pages read.

import { takeComeBack } from "../come_back.js";
import { byId, element, setText } from "../dom.js";
import { duration, timeOfDay } from "../format.js";
import { createBanner } from "./banner.js";
import { modal } from "./dialog.js";
import { eventLine } from "./events.js";
import { Figures } from "./figures.js";
import { showLogin } from "./login.js";
import * as bans from "./pages/bans.js";
import * as client from "./pages/client.js";
import * as configuration from "./pages/configuration.js";
import * as events from "./pages/events.js";
import * as offenders from "./pages/offenders.js";
import * as overview from "./pages/overview.js";
import * as policies from "./pages/policies.js";
import * as routes from "./pages/routes.js";
import * as upstreams from "./pages/upstreams.js";
import { currentRoute, href } from "./router.js";
import { Session } from "./session.js";

const PAGES = { overview, policies, routes, upstreams, client, offenders, bans, events, configuration };
/** The letters that lead to these, in their order. */
const LETTERS = "oprucfbeg";

/** The keys, and their effects outside of input fields. */
const KEYS = {
  "/": { text: "search on this page, or for a client", act: search },
  "?": { text: "show these keys", act: showKeys },
  ...Object.fromEntries(Object.keys(PAGES).map((page, place) => [LETTERS[place], pageKey(page)])),
};

const session = new Session(signIn);
const figures = new Figures(session, showState);
const banner = createBanner(byId("banner"), "problem", byId("announcer"));
const notes = createBanner(byId("notes"), "note");
const showEvents = eventLine(byId("events"));
/** Ends the shown page: its timers and listeners. */
let leave = () => {};

function signIn(reason = "") {
  leave();
  figures.stop();
  showFrame(false);
  byId("done").replaceChildren();
  setText(byId("state"), "");
  banner.show([]);
  notes.show([]);
  byId("main").classList.remove("stale");
  showLogin(byId("main"), session, enterOrComeBack, reason);
}

function showFrame(isShown) {
  ["nav", "leave", "events"].forEach((id) => {
    byId(id).hidden = !isShown;
  });
}

/** A page that needed a token is shown again. */
function enterOrComeBack() {
  const address = takeComeBack();
  if (address) {
    location.assign(address);
  } else {
    enter();
  }
}

function enter() {
  showFrame(true);
  showPage();
  figures.start();
}

function showPage() {
  const { page, names } = currentRoute();
  const shown = Object.hasOwn(PAGES, page) ? PAGES[page] : overview;
  leave();
  document.title = `${shown.TITLE} · sluicegate`;
  showNavigation(page);
  const main = byId("main");
  main.replaceChildren();
  window.scrollTo(0, 0);
  const end = shown.show(main, { session, figures, names });
  leave = () => {
    end?.();
    leave = () => {};
  };
}

function pageKey(page) {
  return { text: PAGES[page].TITLE, act: () => goTo(page) };
}

function goTo(page) {
  location.hash = href(page);
}

/** Gives the focus to the first field of this page, or of that of clients. */
function search() {
  const field = () => byId("main").querySelector("input");
  const focus = () => field()?.select();
  if (!field()) {
    goTo("client");
    window.addEventListener("hashchange", focus, { once: true });
  }
  focus();
}

function showKeys() {
  const keys = Object.entries(KEYS).flatMap(([key, { text }]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, text)]);
  const close = element("button", {}, "Close");
  modal("Keys", element("form", { method: "dialog" }, element("h2", {}, "Keys"), element("dl", { class: "facts" }, ...keys), close));
}

function showNavigation(current) {
  const links = Object.entries(PAGES).map(([page, { TITLE }]) =>
    element("a", { href: href(page), "aria-current": page === current && "page" }, TITLE),
  );
  const nav = byId("nav");
  nav.replaceChildren(...links, element("a", { href: "/playground" }, "Playground"));
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function showState({ status, events: log, problem, answeredAt }) {
  showEvents(log.all);
  // Of a server that is gone, the last figures stay, greyed.
  const isGone = problem?.status === 0 && answeredAt !== null;
  byId("main").classList.toggle("stale", isGone);
  const since = `The server has not answered since ${timeOfDay(answeredAt)}: the figures are from then.`;
  const text = isGone ? since : problem?.message;
  banner.show(problem ? [{ kind: text, labels: {}, text }] : status.problem_details);
  notes.show(problem ? [] : [...status.notes.map(noteOf), ...log.reloadNotes]);
  setText(byId("state"), status ? `${status.version}, up ${duration(status.uptime_s * 1_000)}` : "");
}

/** A note of /v1/status, whose sentence begins with what it is about. */
function noteOf(text) {
  const [, label, name] = /^(policy|upstream) ([^\s:]+)/.exec(text) ?? [];
  return { kind: text.endsWith("a grant by an operator") ? "grant" : "note", labels: { [label]: name }, text };
}

byId("leave").addEventListener("click", () => {
  session.end();
  signIn();
});
window.addEventListener("hashchange", () => {
  if (session.token) {
    showPage();
    byId("main").focus({ preventScroll: true });
  }
});
window.addEventListener("keydown", (pressed) => {
  const isTyping = pressed.target.closest?.("input, select, textarea, dialog");
  if (!session.token || isTyping || pressed.ctrlKey || pressed.metaKey || pressed.altKey) {
    return;
  }
  const act = KEYS[pressed.key]?.act;
  if (act) {
    pressed.preventDefault();
    act();
  }
});
if (session.token) {
  enter();
} else {
  signIn();
}
