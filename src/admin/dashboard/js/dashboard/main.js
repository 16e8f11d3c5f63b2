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

/** The keys, and their effects outside of input fields. */
const KEYS = {
  "/": { text: "search on this page, or for a client", act: search },
  "?": { text: "show these keys", act: showKeys },
  o: { text: "Overview", act: () => goTo("overview") },
  p: { text: "Policies", act: () => goTo("policies") },
  r: { text: "Routes", act: () => goTo("routes") },
  u: { text: "Upstreams", act: () => goTo("upstreams") },
  c: { text: "Client", act: () => goTo("client") },
  f: { text: "Offenders", act: () => goTo("offenders") },
  b: { text: "Bans and grants", act: () => goTo("bans") },
  e: { text: "Events", act: () => goTo("events") },
  g: { text: "Configuration", act: () => goTo("configuration") },
};

const session = new Session(signIn);
const figures = new Figures(session);
const banner = createBanner(byId("banner"), "problem", byId("announcer"));
const notes = createBanner(byId("notes"), "note");
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
  markCurrent(page);
  const main = byId("main");
  main.replaceChildren();
  window.scrollTo(0, 0);
  const end = shown.show(main, { session, figures, names });
  leave = () => {
    end?.();
    leave = () => {};
  };
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

function markCurrent(page) {
  for (const link of byId("nav").querySelectorAll("a")) {
    const isCurrent = link.dataset.page === page;
    link.setAttribute("aria-current", isCurrent ? "page" : "false");
    if (isCurrent) {
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }
}

function buildNavigation() {
  const links = Object.entries(PAGES).map(([page, { TITLE }]) =>
    element("a", { href: href(page), "data-page": page }, TITLE),
  );
  byId("nav").append(...links, element("a", { href: "/playground" }, "Playground"));
}

const line = eventLine(byId("events"));

figures.watch(({ status, events: log, problem, answeredAt }) => {
  line.show(log);
  // Of a server that is gone, the last figures stay, greyed.
  const isGone = problem?.status === 0 && answeredAt !== null;
  byId("main").classList.toggle("stale", isGone);
  const said = isGone ? `The server has not answered since ${timeOfDay(answeredAt)}: the figures are from then.` : problem?.message;
  banner.show(problem ? [{ kind: said, labels: {}, text: said }] : status.problem_details);
  notes.show(problem ? [] : [...status.notes.map(noteOf), ...log.reloadNotes]);
  const up = status ? `${status.version}, up ${duration(status.uptime_s * 1_000)}` : "";
  setText(byId("state"), up);
});

/** A note of /v1/status, whose sentence begins with what it is about. */
function noteOf(text) {
  const [, label, name] = /^(policy|upstream) ([^\s:]+)/.exec(text) ?? [];
  return { kind: text.endsWith("a grant by an operator") ? "grant" : "note", labels: { [label]: name }, text };
}

buildNavigation();
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
