// The form that explains a request, and the explanation.

import { post } from "./api.js";
import { badge, byId, h, table } from "./dom.js";
import { span, whole } from "./format.js";

const DECISIONS = {
  allow: { text: "Allowed", kind: "good" },
  deny: { text: "Denied", kind: "bad" },
  depends: { text: "Depends on the levels", kind: "warn" },
};

/** The request in the form, without empty fields. */
function requestOf(form) {
  const { method, path, key, ip, host, headers } = form.elements;
  const request = { method: method.value, path: path.value.trim() };
  for (const field of [key, ip, host]) {
    if (field.value.trim()) request[field.name] = field.value.trim();
  }
  for (const line of headers.value.split("\n").filter((line) => line.includes(":"))) {
    const at = line.indexOf(":");
    const [name, value] = [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    request.headers ??= {};
    request.headers[name] = name in request.headers ? [request.headers[name], value].flat() : value;
  }
  return request;
}

function verdict({ decision, status, why, retry_after_ms: wait, shadow_refusals: shadow = [] }) {
  const { text, kind } = DECISIONS[decision] ?? { text: decision };
  const parts = [status && badge(String(status), kind), wait > 0 && badge(`retry after ${span(wait)}`, "warn"),
    ...shadow.map((rule) => badge(`shadow: ${rule} would deny`, "warn"))];
  return h("div", { class: "verdict", data: { kind } },
    h("p", {}, h("strong", {}, text), " ", ...parts), h("p", {}, why));
}

function facts({ client, route, request }) {
  const row = (title, ...value) => h("div", {}, h("dt", {}, title), h("dd", {}, ...value));
  const rows = [row("Request", h("code", {}, `${request.method} ${request.host}${request.path}`))];
  if (client) {
    const key = client.key ? [h("code", {}, client.key), ` (${client.key_from})`] : [client.key_state.replaceAll("_", " ")];
    rows.push(row("Address", h("code", {}, client.address ?? "none"), ` ${client.address_why}`), row("Key", ...key));
    if (client.plan) rows.push(row("Plan", h("code", {}, client.plan)));
  }
  if (route) rows.push(row("Route", h("code", {}, route.name), ` to ${route.upstream}, for ${route.cost} token${route.cost === 1 ? "" : "s"}; ${route.why}`));
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
    { title: "Rule", cell: (rule) => h("code", {}, rule.name) },
    { title: "Tokens", cell: mark },
    { title: "Limit", cell: (rule) => (rule.rate ? `${rule.rate}, burst ${whole(rule.burst)}` : "–") },
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

export function start() {
  byId("explain-form").addEventListener("submit", submit);
}
