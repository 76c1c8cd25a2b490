// Refusal runs as rows of a table, with the details of one.

import { badge, code, h, named, table } from "./dom.js";
import { clockMs, day, moment, span, tokenCount, whole } from "./format.js";
import { explainClient } from "./explain.js";
import { limitOf } from "./policy.js";
import { limitText, refillMs } from "./tokens.js";
import * as view from "./view.js";

/** Kinds of runs: the badge of a row, and what happened in words. */
const KINDS = {
  limit: { mark: "429", color: "bad", words: "A rate limit refused these requests." },
  unavailable: { mark: "503", color: "warn", words: "Redis was unavailable, and the rule has on_failure = \"deny\": these requests got 503, whatever tokens were left." },
  unauthorized: { mark: "401", color: "warn", words: "These requests had no valid API key. No rate limit refused them." },
  shadow: { mark: "shadow", color: undefined, words: "The rule is in shadow mode: it would have refused these requests, but let them pass." },
};

export const kindOf = (run) => run.kind ?? "limit";

/** Identifies a run in a list, also while it continues. */
export const idOf = ({ gateway = "", first, key, ip, rule, ...run }) => JSON.stringify([gateway, first, key, ip, rule, kindOf(run)]);

/**
 * Sorts open runs before ended ones. Open runs are sorted by their first refusal, so that they keep
 * their rows while they continue.
 */
export function ordered(runs) {
  const key = ({ open, first, last }) => (open ? `1 ${first}` : `0 ${last}`);
  return [...runs].sort((a, b) => (key(a) < key(b) ? 1 : -1));
}

/** Whether an address is not hashed. A hash cannot be used to look up buckets. */
const isPlain = (ip) => ip !== null && ip !== undefined && !ip.startsWith("h:");

/** What identifies the client of a run for the page of its buckets; `null` if nothing does. */
export function clientOf({ key, ip }) {
  if (key) return { kind: "key", id: key, ip: isPlain(ip) ? ip : "", route: "" };
  return isPlain(ip) ? { kind: "ip", id: ip, ip: "", route: "" } : null;
}

function clientCell(run) {
  const client = clientOf(run);
  const link = client && h("button", {
    type: "button", class: "link", "aria-label": `Watch the buckets of ${client.id}`, data: { kind: client.kind, id: client.id, ip: client.ip },
  }, named(client.id));
  const whence = run.ip && h("span", { class: "muted block" }, h("span", { class: "minor" }, "from "), named(run.ip));
  if (run.key) return [h("span", { class: "muted" }, "key "), link, whence];
  if (!run.ip) return [h("span", { class: "muted" }, "unknown")];
  return [h("span", { class: "muted" }, "address "), link ?? code(run.ip)];
}

function ruleCell(run) {
  const { mark, color } = KINDS[kindOf(run)] ?? { mark: kindOf(run) };
  const what = run.rule ? code(run.rule) : h("span", {}, words(run.reason) ?? "no valid key");
  const plan = run.plan && h("span", { class: "muted block" }, h("span", { class: "minor" }, "plan "), named(run.plan));
  return [badge(String(run.status ?? mark), color), " ", kindOf(run) === "shadow" && run.status ? [badge("shadow"), " "] : null, what, plan].flat();
}

const words = (name) => (name ? name.replaceAll("_", " ") : undefined);

/** A time, with milliseconds as tooltip. */
const time = (at) => h("time", { datetime: at, title: clockMs(Date.parse(at)) }, moment(Date.parse(at), Date.now()));

function detailButton(run, opened) {
  const isOpened = idOf(run) === opened;
  return h("button", {
    type: "button", class: "link more", data: { run: idOf(run) }, "aria-expanded": String(isOpened),
    "aria-label": `Details of the refusals until ${moment(Date.parse(run.last), Date.now())}`,
  }, time(run.last));
}

/** The rule with its limit for the client then; from an older record, its limit now. */
function limitWords({ rule, plan, key, rate, burst }) {
  if (rate) return [code(rule), `, ${rate}`, Number.isInteger(burst) ? `, burst ${whole(burst)}` : ""];
  const now = limitOf(rule, plan, key);
  return [code(rule), now ? `, now ${limitText(now)}` : ""];
}

/** How long the rule needs for the tokens that the last request lacked; `null` if that is unknown. */
function refill({ kind, tokens, cost, rate, rate_is: rateIs }) {
  if (rateIs === "limit") return null;
  const known = [tokens, cost, rate].every((value) => value !== null && value !== undefined);
  if (kind !== "limit" || !known || tokens >= cost) return null;
  return `${tokenCount(cost - tokens)} in ${span(refillMs(rate, cost - tokens))} at ${rate}`;
}

/** All that is known of a run, and where to go from it. */
function details(run) {
  const at = (text) => `${day(Date.parse(text))}.${clockMs(Date.parse(text)).slice(-3)}`;
  const fact = (title, ...value) => h("div", {}, h("dt", {}, title), h("dd", {}, ...value));
  const optional = (title, value, ...shown) => value !== null && value !== undefined && value !== "" && fact(title, ...(shown.length ? shown : [String(value)]));
  const client = clientOf(run);
  const target = { keyId: run.key, ip: isPlain(run.ip) ? run.ip : undefined, route: run.route };
  return [
    h("p", {}, KINDS[kindOf(run)]?.words),
    h("dl", { class: "facts lines" },
      fact("First", h("time", { datetime: run.first }, at(run.first))),
      fact("Last", h("time", { datetime: run.last }, at(run.last)), run.open ? " (continues)" : ""),
      fact("Requests", whole(run.count)),
      run.rule && fact("Rule", ...limitWords(run)),
      optional("Plan", run.plan, code(run.plan ?? "")),
      optional("Status", run.status),
      optional("Reason", run.reason, words(run.reason)),
      optional("Key", run.key ? null : run.key_state),
      optional("Key", run.key && run.key_name, code(run.key_name ?? "")),
      optional("Key found in", run.key_from),
      optional("Route", run.route, code(run.route ?? ""), run.other_routes ? " and others" : ""),
      optional("Cost", run.cost, tokenCount(run.cost ?? 0)),
      optional("Tokens left", run.tokens, whole(run.tokens ?? 0)),
      optional("Refill", refill(run)),
      optional("Configuration", run.generation, `no. ${run.generation}`),
      optional("Gateway", run.gateway, code(String(run.gateway ?? "")))),
    h("div", { class: "actions" },
      client && h("button", { type: "button", data: { kind: client.kind, id: client.id, ip: client.ip } }, "The client’s buckets"),
      (target.keyId || target.ip) && h("button", { type: "button", data: { explain: JSON.stringify(target) } }, "Explain such a request")),
  ];
}

/** Says why runs of other gateways may be missing. */
export const missing = (reason) => (reason ? ` Runs of other gateways may be missing: ${reason.replace(/\.$/, "")}.` : "");

/** A table of runs; `opened` is the run whose details are shown. The containing element listens for clicks. */
export function runTable(caption, runs, opened) {
  return table(caption, [
    { title: "Client", cell: clientCell },
    { title: "Refused by", cell: ruleCell },
    { title: "First", kind: "minor", cell: ({ first }) => time(first) },
    { title: "Last", cell: (run) => [detailButton(run, opened), " ", run.open ? badge("open", "bad") : null] },
    { title: "Requests", kind: "number", cell: ({ count }) => whole(count) },
    { title: "Tokens left", kind: "number minor", cell: ({ tokens }) => (tokens === null || tokens === undefined ? "–" : whole(tokens)) },
  ], ordered(runs), (run) => idOf(run) === opened && details(run));
}

/** Handles the buttons of a list of runs; `toggle(run)` shows or hides the details of one. */
export function onRunClick(element, toggle) {
  element.addEventListener("click", (event) => {
    const { run, explain, kind, id, ip, view: members } = event.target.closest("button")?.dataset ?? {};
    if (run) toggle(run);
    else if (explain) explainClient(JSON.parse(explain));
    else if (members) view.change(JSON.parse(members));
    else if (kind) view.go({ section: "buckets", client: { kind, id, ip, route: "" } });
  });
}
