// One client: its buckets, live, with reset and grant, and its recent refusals.

import { every, get, post, remove } from "./api.js";
import { byId, code, empty, fill, h } from "./dom.js";
import { confirm } from "./dialogs.js";
import { clock, whole } from "./format.js";
import { BucketCard } from "./bucketcard.js";
import { explainClient } from "./explain.js";
import * as history from "./history.js";
import { costOf } from "./policy.js";
import * as view from "./view.js";

const EVERY_MS = 500;

/** Top-ups are changed by operators only, and used by requests: a list of them can be older. */
const TOP_UPS_EVERY_MS = 5_000;

const HINT = "Enter a key id or an address, or select a client above.";

let client = null;
let stop = null;
const cards = new Map();

const base = () => `/api/clients/${client.kind}/${encodeURIComponent(client.id)}`;

/** Query parameters that describe the client's request, after these. */
function query(more = {}) {
  const given = new URLSearchParams(more);
  if (client.route) given.set("route", client.route);
  if (client.ip && client.kind === "key") given.set("ip", client.ip);
  const text = given.toString();
  return text && `?${text}`;
}

/** Watches the buckets of a client. */
function open(wanted) {
  client = wanted;
  const form = byId("client-form");
  for (const name of ["kind", "id", "route", "ip"]) form.elements[name].value = client[name] ?? "";
  stop?.();
  cards.clear();
  byId("client-view").replaceChildren(
    h("div", { class: "client-head" },
      h("p", { id: "client-who", role: "status" }, `Loading ${client.id}`),
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: explain }, "Explain a request"),
        h("button", { type: "button", onclick: () => reset(null) }, "Reset all"),
        h("button", { type: "button", onclick: () => grant(null) }, "Grant to all"))),
    h("p", { id: "client-result", role: "status", class: "result" }),
    h("div", { class: "cards", id: "client-cards" }),
    h("div", { id: "client-top-ups" }),
    h("div", { id: "client-others" }),
    history.section());
  byId("client-stop").hidden = false;
  const stops = [every(EVERY_MS, refresh), every(TOP_UPS_EVERY_MS, refreshTopUps), history.start(client)];
  stop = () => stops.forEach((end) => end());
}

/** Prefills the form of `explain` with this client. */
function explain() {
  const { kind, id, ip, route } = client;
  explainClient(kind === "key" ? { keyId: id, ip, route } : { ip: id, route });
}

async function refresh() {
  const requested = client;
  try {
    const answer = await get(`${base()}/buckets${query()}`);
    if (requested === client) show(answer, performance.now());
  } catch (problem) {
    if (requested !== client) return;
    byId("client-who").textContent = problem.message;
    byId("client-cards").replaceChildren();
    cards.clear();
    // An unknown client is an error that polling does not change.
    if (problem.status === 400 || problem.status === 404) end();
  }
}

function show(answer, at) {
  const { kind, id, plan, counted_as: counted } = answer.client;
  const where = { redis: "in Redis, for all gateways", local: "in this gateway" }[answer.levels] ?? answer.levels;
  const whence = kind === "key" ? ` from ${counted}` : `, counted as ${counted}`;
  const name = `${kind === "key" ? "Key" : "Address"} ${id}${counted && counted !== id ? whence : ""}`;
  const who = `${name}, on the plan ${plan}. Buckets are ${where}.`;
  if (byId("client-who").textContent !== who) byId("client-who").textContent = who;
  const held = answer.rules.filter((rule) => rule.tokens !== null && rule.tokens !== undefined);
  const wanted = new Set(held.map((rule) => rule.rule));
  for (const name of cards.keys()) {
    if (wanted.has(name)) continue;
    cards.get(name).element.remove();
    cards.delete(name);
  }
  for (const rule of held) {
    if (!cards.has(rule.rule)) {
      const card = new BucketCard(rule, { reset: () => reset(rule), grant: () => grant(rule) });
      cards.set(rule.rule, card);
      byId("client-cards").append(card.element);
    }
    cards.get(rule.rule).show(rule, costOf(client.route, rule.rule), at);
  }
  fill(byId("client-others"), others(answer.rules.filter((rule) => !wanted.has(rule.rule))));
}

/** Shows what the client has beyond its quotas until a time. */
async function refreshTopUps() {
  const requested = client;
  try {
    const { top_ups: all } = await get(`${base()}/top-ups${query()}`);
    if (requested === client) byId("client-top-ups").replaceChildren(...topUps(all));
  } catch {
    // The buckets show what is wrong.
    if (requested === client) byId("client-top-ups").replaceChildren();
  }
}

function topUps(all) {
  if (all.length === 0) return [];
  const heading = (name) => h("th", { scope: "col" }, name);
  const row = (one) => h("tr", {},
    h("td", {}, code(one.id)), h("td", {}, code(one.rule)), h("td", { class: "number" }, whole(one.left)), h("td", { class: "number" }, whole(one.tokens)),
    h("td", {}, one.expires.slice(0, 16).replace("T", " ")), h("td", {}, one.by), h("td", {}, one.reason ?? ""),
    h("td", {}, h("button", { type: "button", onclick: () => revoke(one), "aria-label": `Revoke the top-up ${one.id} of ${one.rule}` }, "Revoke")));
  return [h("table", {}, h("caption", {}, "Top-ups"),
    h("thead", {}, h("tr", {}, ["Id", "Rule", "Left", "Of", "Expires (UTC)", "By", "Reason", h("span", { class: "hidden" }, "Action")].map(heading))),
    h("tbody", {}, all.map(row)))];
}

async function revoke(one) {
  const sure = await confirm({
    title: `Revoke the top-up ${one.id} of ${client.id}?`, yes: "Revoke",
    text: `Takes away the ${whole(one.left)} tokens that are left of it, for all gateways.`,
  });
  if (!sure) return;
  try {
    const { rule, from, to } = await remove(`${base()}/top-ups/${encodeURIComponent(one.id)}${query({ rule: one.rule })}`);
    showResult("Revoked", { buckets: [{ rule, from, to }] });
  } catch (problem) {
    byId("client-result").dataset.kind = "bad";
    byId("client-result").textContent = `Not revoked: ${problem.message}`;
  }
  await refreshTopUps();
}

/** Rules without a bucket to show, and the reason. */
function others(rules) {
  if (rules.length === 0) return null;
  const why = (rule) => (rule.applies === false ? rule.why_not?.why ?? "does not apply" : `counts by values that were not given: ${rule.unknown.join(", ")}`);
  return h("details", {}, h("summary", {}, `${rules.length} more rule${rules.length > 1 ? "s" : ""} without a bucket to show`),
    h("ul", {}, rules.map((rule) => h("li", {}, code(rule.rule), ` ${why(rule)}`))));
}

/** Shows the result, with the tokens of each bucket before and after. */
function showResult(verb, answer) {
  const done = answer.buckets.map(({ rule, from, to }) => `${rule} ${whole(from)} → ${whole(to)}`);
  const left = answer.left_out?.map(({ rule, unknown }) => `${rule} (depends on ${unknown.join(", ")})`) ?? [];
  const text = `${clock(Date.now())} ${verb}: ${done.join(", ") || "nothing"}`;
  byId("client-result").dataset.kind = "good";
  byId("client-result").textContent = left.length ? `${text}. Skipped: ${left.join(", ")}` : text;
}

async function change(verb, call, body) {
  try {
    showResult(verb, await post(`${base()}/${call}${query()}`, body));
    await refresh();
  } catch (problem) {
    byId("client-result").dataset.kind = "bad";
    byId("client-result").textContent = `Not ${verb.toLowerCase()}: ${problem.message}`;
  }
}

async function reset(rule) {
  const which = rule ? `the bucket of ${rule.rule}` : "all buckets that only this client uses";
  const shared = rule && !rule.own ? " Other clients share this bucket." : "";
  const sure = await confirm({
    title: `Reset ${client.id}?`, yes: "Reset",
    text: `Fills ${which}, for all gateways.${shared}`,
  });
  if (sure) await change("Reset", "reset", rule ? { rule: rule.rule } : undefined);
}

async function grant(rule) {
  const shared = rule && !rule.own ? " Other clients share this bucket." : "";
  const tokens = await confirm({
    title: `Grant tokens to ${client.id}?`, yes: "Grant",
    text: `Adds tokens to ${rule ? `the bucket of ${rule.rule}` : "all buckets that only this client uses"}, up to its burst.${shared}`,
    number: { label: "Tokens", value: Math.min(rule?.burst ?? 10, 10), max: 9_007_199_254_740_991 },
  });
  if (tokens) await change("Granted", "grant", rule ? { rule: rule.rule, tokens } : { tokens });
}

function end() {
  stop?.();
  stop = null;
  byId("client-stop").hidden = true;
}

/** Follows the view: another client, or none. */
function apply(now, before) {
  if (JSON.stringify(now.client) === JSON.stringify(before.client)) return;
  if (now.client) {
    open(now.client);
    return;
  }
  end();
  client = null;
  byId("client-view").replaceChildren(empty(HINT));
}

export function start() {
  byId("client-view").replaceChildren(empty(HINT));
  byId("client-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const { kind, id, route, ip } = event.target.elements;
    const before = client;
    view.change({ client: { kind: kind.value, id: id.value.trim(), route: route.value, ip: ip.value.trim() } });
    // The same client again, after an error.
    if (client === before && client) open(client);
  });
  byId("client-stop").addEventListener("click", () => view.change({ client: null }));
  view.listen(apply);
}
