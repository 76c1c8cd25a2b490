// The form that explains a request, and the explanation.

import { post } from "./api.js";
import { badge, byId, code, h, table } from "./dom.js";
import { span, tokenCount, whole } from "./format.js";
import { requestOn } from "./policy.js";
import { limitText } from "./tokens.js";
import * as view from "./view.js";

const DECISIONS = {
  allow: { text: "Allowed", kind: "good" },
  deny: { text: "Denied", kind: "bad" },
  depends: { text: "Depends on the levels", kind: "warn" },
};

/** The request in the form, without empty fields. */
function requestOf(form) {
  const { method, path, key_id: keyId, key, ip, host, headers } = form.elements;
  const request = { method: method.value, path: path.value.trim() };
  for (const field of [keyId, key, ip, host]) {
    if (field.value.trim()) request[field.name] = field.value.trim();
  }
  for (const line of headers.value.split("\n").filter((line) => line.includes(":"))) {
    const at = line.indexOf(":");
    const [name, value] = [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    request.headers ??= {};
    request.headers[name] = Object.hasOwn(request.headers, name) ? [request.headers[name], value].flat() : value;
  }
  return request;
}

function verdict({ decision, status, why, retry_after_ms: wait, shadow_refusals: shadow = [] }) {
  const { text, kind } = DECISIONS[decision] ?? { text: decision };
  const parts = [status && badge(String(status), kind), wait > 0 && badge(`retry after ${span(wait)}`, "warn"),
    ...shadow.map((rule) => badge(`shadow: ${rule} would refuse`, "warn"))];
  return h("div", { class: "verdict", data: { kind } },
    h("p", {}, h("strong", {}, text), " ", ...parts), h("p", {}, why));
}

function facts({ client, route, request }) {
  const row = (title, ...value) => h("div", {}, h("dt", {}, title), h("dd", {}, ...value));
  const rows = [row("Request", h("code", {}, `${request.method} ${request.host}${request.path}`))];
  if (client) {
    const from = client.key_from ? ` (${client.key_from.replaceAll("_", " ")})` : "";
    const refused = ["expired", "not_yet_valid", "disabled"].includes(client.key_state) ? `, ${client.key_state.replaceAll("_", " ")}` : "";
    const key = client.key ? [code(client.key), from, refused] : [`${client.key_state.replaceAll("_", " ")}${from}`];
    rows.push(row("Address", h("code", {}, client.address ?? "none"), ` ${client.address_why}`), row("Key", ...key));
    if (client.plan) rows.push(row("Plan", code(client.plan)));
  }
  if (route) rows.push(row("Route", ...(route.name ? [code(route.name), ` to ${route.upstream ?? "one of its upstreams"}, for ${tokenCount(route.cost)}; ${route.why}`] : [route.why])));
  if (route?.endpoints_down) rows.push(row("Without requests", route.endpoints_down.join(", ")));
  if (route?.lookups_failing) rows.push(row("Look-ups that fail", route.lookups_failing.join(", ")));
  return h("dl", { class: "facts lines" }, rows);
}

function rules(list) {
  const detail = (rule) => {
    if (!rule.applies) return rule.why_not?.why ?? "does not apply";
    if (rule.tokens === undefined || rule.tokens === null) return `takes ${rule.cost}`;
    return `has ${whole(rule.tokens)} of ${whole(rule.burst)}, takes ${rule.cost}`;
  };
  const mark = (rule) => {
    if (!rule.applies) return badge("not counted");
    if (rule.enough === undefined) return badge("counts");
    return rule.enough ? badge("enough", "good") : badge("too few", "bad");
  };
  return table("Rules", [
    { title: "Rule", cell: (rule) => code(rule.name) },
    { title: "Tokens", cell: mark },
    { title: "Limit", cell: (rule) => (rule.rate ? limitText(rule) : "–") },
    { title: "Detail", cell: detail },
  ], list);
}

async function submit(event) {
  event.preventDefault();
  const place = byId("explanation");
  try {
    const answer = await post("/api/explain", requestOf(event.target));
    place.replaceChildren(verdict(answer.verdict), facts(answer), answer.rules.length ? rules(answer.rules) : "");
  } catch (problem) {
    place.replaceChildren(h("p", { class: "field-error" }, problem.message));
  }
}

/** Fills the form with a client, by the id of its key or by its address, and a path of `route`; goes there. */
export function explainClient({ keyId, ip, route }) {
  const { method, path, key_id: id, key, ip: address, host, headers } = byId("explain-form").elements;
  const request = requestOn(route);
  [id.value, key.value, address.value, host.value, headers.value] = [keyId ?? "", "", ip ?? "", request.host, ""];
  [method.value, path.value] = [request.method, request.path];
  view.go({ section: "explain" });
  byId("explain-form").requestSubmit();
}

export function start() {
  byId("explain-form").addEventListener("submit", submit);
}
