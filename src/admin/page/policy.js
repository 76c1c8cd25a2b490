// The limits in force, and the options of forms.

import { get } from "./api.js";
import { badge, byId, empty, fill, h, table } from "./dom.js";
import { whole } from "./format.js";

/** Maximum number of limits shown per rule; many keys may have their own. */
const LISTED = 6;

let generation = null;
let costs = new Map();
let shadows = new Set();

/** Cost of a request of a route; 1 if the route is unknown. */
export const costOf = (route) => costs.get(route) ?? 1;

/** Whether a rule is in shadow mode. */
export const isShadow = (rule) => shadows.has(rule);

function limits(rule) {
  const named = rule.limits.slice(0, LISTED).map((limit) => {
    const whose = limit.key ? ["key ", h("code", {}, limit.key)] : limit.plan ? ["plan ", h("code", {}, limit.plan)] : ["all clients"];
    return h("li", {}, `${limit.rate}, burst ${whole(limit.burst)} `, h("span", { class: "muted" }, "for ", ...whose));
  });
  const more = rule.limits.length - named.length + (rule.more_limits ?? 0);
  if (more > 0) named.push(h("li", { class: "muted" }, `and ${whole(more)} more`));
  return h("ul", { class: "plain" }, named);
}

function name(rule) {
  const marks = [rule.enabled ? null : badge("off"), rule.mode === "shadow" ? badge("shadow") : null];
  return [h("code", {}, rule.name), " ", ...marks.filter(Boolean), rule.description ? h("span", { class: "muted block" }, rule.description) : null].filter(Boolean);
}

function show(policy) {
  fill(byId("rules"), policy.rules.length === 0 ? empty("The configuration has no rules.") : table("Limits in force", [
    { title: "Rule", cell: name },
    { title: "Bucket per", cell: (rule) => (rule.per.length ? rule.per.join(" and ") : "one global bucket") },
    { title: "Limits", cell: limits },
    { title: "Routes", kind: "minor", cell: (rule) => rule.routes?.join(", ") ?? "all" },
    { title: "Without Redis", kind: "minor", cell: (rule) => rule.on_failure },
  ], policy.rules));
  byId("key-ids").replaceChildren(...policy.keys.map((key) => h("option", { value: key.id }, `plan ${key.plan}`)));
  shadows = new Set(policy.rules.filter((rule) => rule.mode === "shadow").map((rule) => rule.name));
  costs = new Map(policy.routes.map((route) => [route.name, route.cost]));
  const rules = policy.rules.map((rule) => [rule.name, rule.name]);
  for (const id of ["clients-rule", "refusals-rule"]) offer(byId(id), "all rules", rules);
  offer(byId("client-form").elements.route, "any", policy.routes.map(({ name, cost }) => [name, cost === 1 ? name : `${name}, cost ${cost}`]));
}

/** Updates the options; keeps the selection if it still exists. */
function offer(select, all, options) {
  const chosen = select.value;
  select.replaceChildren(h("option", { value: "" }, all), ...options.map(([value, text]) => h("option", { value }, text)));
  select.value = options.some(([value]) => value === chosen) ? chosen : "";
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
