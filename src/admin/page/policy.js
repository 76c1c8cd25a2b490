// The limits in force, and the options of forms.

import { get } from "./api.js";
import { badge, byId, code, empty, fill, h, named, table } from "./dom.js";
import { whole } from "./format.js";
import { showWarnings } from "./reloads.js";
import { limitText } from "./tokens.js";

/** Maximum number of limits shown per rule; many keys may have their own. */
const LISTED = 6;

let generation = null;
let listsAllGateways = false;
let routes = new Map();
let rules = new Map();

/** Whether the refusals of all gateways can be listed. */
export const listsAll = () => listsAllGateways;

/** Tokens that a request of a route takes from a bucket of a rule; 1 if both are unknown. */
export const costOf = (route, rule) => rules.get(rule)?.cost ?? routes.get(route)?.cost ?? 1;

/** Whether a rule is of this kind. */
export const hasKind = (kind) => [...rules.values()].some((rule) => rule.kind === kind);

/** Whether a rule bans clients. */
export const hasBans = () => [...rules.values()].some((rule) => rule.ban && rule.enabled);

/** Whether a rule is in shadow mode. */
export const isShadow = (rule) => rules.get(rule)?.mode === "shadow";

/** The limit that a rule has for a key or a plan now: `{ rate, burst }`; `undefined` if it has none. */
export function limitOf(rule, plan, key) {
  const limits = rules.get(rule)?.limits ?? [];
  return limits.find((limit) => limit.key && limit.key === key)
    ?? limits.find((limit) => !limit.key && limit.plan && limit.plan === plan)
    ?? limits.find((limit) => !limit.key && !limit.plan);
}

/** A request that a route takes: `{ method, path, host }`; of `/` if the route is unknown. */
export function requestOn(name) {
  const route = routes.get(name);
  const hosts = route?.host?.split(", ") ?? [];
  const host = hosts.find((one) => !one.includes("*")) ?? "";
  return { method: route?.methods[0] ?? "GET", path: route?.path.startsWith("/") ? route.path.replaceAll("*", "") : "/", host };
}

function limits(rule) {
  const named = rule.limits.slice(0, LISTED).map((limit) => {
    const whose = limit.key ? ["key ", code(limit.key)] : limit.plan ? ["plan ", code(limit.plan)] : ["all clients"];
    return h("li", {}, `${limitText(limit)} `, h("span", { class: "muted" }, "for ", ...whose));
  });
  const more = rule.limits.length - named.length + (rule.more_limits ?? 0);
  if (more > 0) named.push(h("li", { class: "muted" }, `and ${whole(more)} more`));
  return h("ul", { class: "plain" }, named);
}

function name(rule) {
  const marks = [rule.enabled ? null : badge("off"), rule.mode === "shadow" ? badge(rule.candidate_of ? "candidate" : "shadow") : null, rule.enforce ? badge(`for ${rule.enforce}`) : null, rule.ban ? badge("bans") : null, rule.adapt ? badge(rule.rate_percent < 100 ? `rate at ${rule.rate_percent} %` : "adapts") : null];
  return [code(rule.name), " ", ...marks.filter(Boolean), rule.description ? h("span", { class: "muted block words" }, rule.description) : null].filter(Boolean);
}

/** What identifies clients beside API keys of the file, and other settings of all routes: `[what, in words]` each. */
function others(policy) {
  const { jwt, introspection, basic } = policy.clients;
  const list = (values, none) => (values.length === 0 ? none : values.join(", "));
  const kept = (seconds) => (seconds === null ? "answers not kept" : `answers kept ${whole(seconds)} s`);
  const store = policy.key_store;
  return [
    ...jwt.map((one) => ["Tokens (JWT)", `${one.issuer}, for ${list(one.audience, "any audience")}, keys ${one.keys === "file" ? "of the file" : `of ${one.keys}`}, ${list(one.algorithms, "no algorithm")}`]),
    introspection && ["Tokens that are asked about", `${introspection.server}, for ${list(introspection.audience, "any audience")}, ${kept(introspection.cache_s)}`],
    basic && ["Passwords", `${whole(basic.users)} users`],
    store && ["Key store", `${store.place}${store.self_rotation ? ", clients can replace their own keys" : ""}`],
    ...policy.forward_auth.map((one) => ["Asked about requests", `${one.server}, for ${list(one.routes, "no route")}, ${kept(one.cache_s)}, without an answer: ${one.on_failure}`]),
    policy.cors && ["CORS", policy.cors],
    policy.errors.length > 0 && ["Errors", policy.errors.join("; ")],
  ].filter(Boolean);
}

function showOthers(rows) {
  byId("identity-card").hidden = rows.length === 0;
  fill(byId("identity"), table("Identity of clients", [
    { title: "What", cell: ([what]) => what },
    { title: "Settings", cell: ([, words]) => h("span", { class: "words" }, words) },
  ], rows));
}

function show(policy) {
  fill(byId("rules"), policy.rules.length === 0 ? empty("The configuration has no rules.") : table("Limits in force", [
    { title: "Rule", cell: name },
    { title: "Bucket per", cell: (rule) => (rule.per.length ? named(rule.per.join(" and ")) : "one global bucket") },
    { title: "Limits", cell: limits },
    { title: "Routes", kind: "minor", cell: (rule) => rule.routes?.flatMap((route, index) => [index > 0 ? ", " : "", ...named(route)]) ?? "all" },
    { title: "Without Redis", kind: "minor", cell: (rule) => rule.on_failure },
  ], policy.rules));
  showOthers(others(policy));
  byId("key-ids").replaceChildren(...policy.keys.map((key) => h("option", { value: key.id }, `plan ${key.plan}`)));
  showWarnings(policy);
  listsAllGateways = Boolean(policy.audit?.all_gateways);
  rules = new Map(policy.rules.map((rule) => [rule.name, rule]));
  routes = new Map(policy.routes.map((route) => [route.name, route]));
  const names = policy.rules.map((rule) => [rule.name, rule.name]);
  for (const id of ["clients-rule", "refusals-rule"]) offer(byId(id), "all rules", names);
  offer(byId("client-form").elements.route, "any", policy.routes.map(({ name, cost }) => [name, cost === 1 ? name : `${name}, cost ${cost}`]));
}

/** Updates the options; keeps the selection, also of a rule that the file no longer has. */
function offer(select, all, options) {
  const chosen = select.value;
  const gone = chosen && !options.some(([value]) => value === chosen) ? [[chosen, chosen]] : [];
  select.replaceChildren(h("option", { value: "" }, all), ...[...options, ...gone].map(([value, text]) => h("option", { value }, text)));
  select.value = chosen;
}

/** Requests the limits when the generation changes. */
export async function update(now) {
  if (now === generation) return;
  generation = now;
  try {
    show(await get("/api/policy"));
  } catch (problem) {
    generation = null;
    fill(byId("rules"), empty(problem.message));
  }
}
