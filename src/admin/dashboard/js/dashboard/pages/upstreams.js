// The endpoints of upstreams: their addresses, their health, and draining.

import { element, setText } from "../../dom.js";
import { duration, number } from "../../format.js";
import { confirmChange, reasonField } from "../dialog.js";
import { stateWords } from "../host_words.js";
import { problemLine, recentCells, repeat, table } from "../parts.js";

export const TITLE = "Upstreams";

const PERIOD = 2_000;

export function show(main, { session }) {
  const problem = problemLine();
  const list = element("div", { class: "stack" });
  const sections = new Map();
  const look = async () => {
    const { upstreams } = await session.get("/v1/upstreams");
    problem.show(null);
    const names = upstreams.map(({ name }) => name);
    for (const [name, { node }] of [...sections].filter(([known]) => !names.includes(known))) {
      node.remove();
      sections.delete(name);
    }
    for (const upstream of upstreams) {
      if (!sections.has(upstream.name)) {
        sections.set(upstream.name, createSection(upstream.name));
        list.append(sections.get(upstream.name).node);
      }
      sections.get(upstream.name).fill(session, upstream, look);
    }
  };
  main.append(element("h1", {}, TITLE), problem.node, list);
  return repeat(look, PERIOD, (error) => problem.show(error));
}

function createSection(name) {
  const about = element("p", { class: "small soft" });
  const hosts = table(`Addresses of ${name}`, [
    ["Endpoint"],
    ["Address"],
    ["State"],
    ["In flight now", "number"],
    ["Failures in a row", "number"],
    ["Weight", "number"],
    [""],
  ]);
  const node = element("section", {}, element("h2", {}, name), about, hosts.node);
  return {
    node,
    fill(session, upstream, look) {
      setText(about, aboutText(upstream));
      hosts.node.hidden = upstream.endpoints.length === 0;
      hosts.fill(upstream.endpoints.flatMap((endpoint) => rows(session, upstream.name, endpoint, look)), "");
    },
  };
}

function aboutText({ protocol, balance, recent }) {
  if (protocol === null) {
    return "Built in: it answers with the request.";
  }
  const [all, , failed, p50, p99] = recentCells(recent);
  const answers = recent?.requests_per_s > 0 ? `${all} answers, ${failed} of them 5xx; half within ${p50}, 99\u00a0% within ${p99}` : "no answers";
  return `${protocol}, balanced by ${balance?.replaceAll("_", " ")}. Over the last 10 to 20\u00a0s ${answers}.`;
}

function rows(session, upstream, endpoint, look) {
  const isEjected = endpoint.hosts.some(({ state }) => state === "ejected");
  const buttons = [drainButton(session, upstream, endpoint, look), isEjected ? readmitButton(session, upstream, endpoint, look) : null];
  const row = element("div", { class: "row" }, ...buttons);
  const hosts = endpoint.hosts.length ? endpoint.hosts : [null];
  return hosts.map((host, place) => ({ key: `${endpoint.endpoint} ${place === 0 ? "" : host.address}`, cells: [
    place === 0 ? endpoint.endpoint : "",
    host?.address ?? "not resolved",
    host ? stateNode(host) : "–",
    host ? number(host.in_flight) : "–",
    host ? number(host.failures) : "–",
    number(endpoint.weight),
    place === 0 ? row : "",
  ] }));
}

function stateNode({ state, reason, for_s: rest }) {
  const again = rest === null ? "" : `; tried again in ${duration(Math.ceil(rest) * 1_000)}`;
  return element("span", { class: `host ${state}` }, stateWords(state, reason) + again);
}

function readmitButton(session, upstream, { endpoint }, look) {
  const path = `/v1/upstreams/${encodeURIComponent(upstream)}/endpoints/${encodeURIComponent(endpoint)}/readmit`;
  const name = `Readmit ${endpoint}`;
  const ask = async () => {
    const isDone = await confirmChange({
      title: name,
      text: "Its ejection ends now, and it gets requests again. If it still fails, it is ejected again.",
      fields: { reason: reasonField() },
      action: "Readmit",
      preview: async () => [],
      apply: ({ reason }) => session.post(path, { reason: reason || null }),
    });
    if (isDone) {
      await look();
    }
  };
  return element("button", { type: "button", "aria-label": name, onclick: ask }, "Readmit …");
}

function drainButton(session, upstream, { endpoint, draining }, look) {
  const path = `/v1/upstreams/${encodeURIComponent(upstream)}/endpoints/${encodeURIComponent(endpoint)}/drain`;
  const ask = async () => {
    const isDone = await confirmChange({
      title: draining ? `End draining ${endpoint}` : `Drain ${endpoint}`,
      text: draining ? "The endpoint gets requests again." : "New requests go elsewhere; those in flight end. Until undone, or a restart.",
      fields: { reason: reasonField() },
      action: draining ? "End draining" : "Drain",
      preview: async () => [],
      apply: ({ reason }) => session.post(path, { drain: !draining, reason: reason || null }),
    });
    if (isDone) {
      await look();
    }
  };
  const name = draining ? `End draining ${endpoint}` : `Drain ${endpoint}`;
  return element("button", { type: "button", "aria-label": name, onclick: ask }, draining ? "End draining …" : "Drain …");
}
