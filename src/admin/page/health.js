// The circuit breaker and its transitions, the sources of decisions, connections and memory, the upstreams and the
// certificates.

import { every, get, post } from "./api.js";
import { badge, byId, code, empty, fill, h, named, table } from "./dom.js";
import { confirm } from "./dialogs.js";
import { bytes, moment, span, whole } from "./format.js";
import { breakerChanges, counts } from "./series.js";
import { TimeChart } from "./timechart.js";

const EVERY_MS = 2_000;
const CERTIFICATES_EVERY_MS = 10_000;
const LISTED = 6;

const KINDS = { closed: "good", half_open: "warn", open: "bad" };
const MEANING = {
  closed: "Redis decides.",
  half_open: "Redis responds again; requests return to it step by step.",
  open: "Redis is not used. Each gateway decides locally, with its share of each limit.",
};

/** Sources of decisions, as in `tollgate_check_duration_seconds`. */
const SOURCES = { redis: "Redis", cache: "deny cache", local: "local fallback", policy: "policy (no bucket)", lease: "lease" };

let sources;
let changes = [];

const fact = (title, ...value) => h("div", {}, h("dt", {}, title), h("dd", {}, ...value));

async function setOverride(state) {
  const [title, text, yes] = QUESTIONS[state];
  if (!(await confirm({ title, text, yes }))) return;
  try {
    await post("/api/breaker", { state });
    await refreshStatus();
  } catch (problem) {
    fill(byId("breaker"), h("p", { class: "field-error" }, problem.message));
  }
}

/** Actions of an operator, and the confirmation of each. */
const QUESTIONS = {
  open: ["Rehearse an outage of Redis?", "This gateway does not use Redis until the override ends. It enforces limits locally meanwhile.", "Open the breaker"],
  auto: ["End the override?", "The breaker follows the outcomes of calls to Redis again.", "End it"],
};

function shown({ breaker, gateways, limits, redis, buckets }) {
  if (!breaker) {
    return [h("p", {}, "No ", h("code", {}, "[redis]"), " in the file: buckets live in this gateway, and limits are not shared."),
      h("dl", { class: "facts lines" }, fact("Buckets", `${whole(buckets.local)} of at most ${whole(buckets.max)}`), fact("Evicted", whole(buckets.evictions)))];
  }
  const isOverridden = breaker.override !== "auto";
  const list = changes.slice(0, LISTED).map(({ at_ms, to, times }) =>
    h("li", {}, h("time", {}, moment(at_ms, Date.now())), " ", badge(to.replace("_", " "), KINDS[to]), times > 1 ? ` ${times} times` : ""));
  return [
    h("p", { class: "state" }, badge(breaker.state.replace("_", " "), KINDS[breaker.state]), redis.away ? ` ${redis.away}.` : ` ${MEANING[breaker.state] ?? ""}`, isOverridden ? " Overridden by an operator." : ""),
    h("dl", { class: "facts lines" },
      fact("For", span(breaker.since_ms)),
      fact("Requests that use Redis", `${breaker.admits_percent} %`),
      breaker.retry_after_ms > 0 ? fact("Next probe in", span(breaker.retry_after_ms)) : null,
      fact("Connection", redis.connected ? "up" : badge("down", "bad")),
      ...redis.masters.map((master) => fact(`Master ${master.address}`,
        badge(master.connected ? master.breaker.state.replace("_", " ") : "away", master.connected ? KINDS[master.breaker.state] : "bad"),
        ` for ${span(master.breaker.since_ms)}, ${whole(master.slots)} slots`)),
      fact("Gateways that share Redis", whole(gateways)),
      limits.gateways_with_others > 0 ? fact("With other limits", badge(whole(limits.gateways_with_others), "bad"), " Their files differ from this gateway’s.") : null,
      fact("Hash of the limits", code(limits.hash)),
      fact("Local buckets", whole(buckets.local)),
      fact("Buckets in debt", whole(buckets.debts))),
    h("h4", {}, "Transitions"),
    list.length ? h("ol", { class: "moments" }, list) : empty("None in this range."),
    h("div", { class: "actions" }, isOverridden
      ? h("button", { type: "button", data: { override: "auto" } }, "End the override")
      : h("button", { type: "button", data: { override: "open" } }, "Rehearse an outage")),
  ];
}

/** What the process has run out of. */
function causes({ connections, overloaded }) {
  return [
    overloaded.memory && `memory is over its limit; idle connections are closed${overloaded.paused ? ", and new ones wait" : ""}`,
    overloaded.descriptors && "few or no file descriptors are left; idle connections are closed",
    connections.open >= connections.max && "no more connections are allowed; new ones are closed",
  ].filter(Boolean);
}

function connectionsAndMemory({ connections, memory }, found) {
  const rejected = Object.entries(connections.rejected_last_minute).sort(([, a], [, b]) => b - a);
  return [
    h("p", { class: "state" }, found.length ? badge("overloaded", "bad") : badge("not overloaded", "good"), found.length ? ` ${found.join("; ")}.` : ""),
    h("dl", { class: "facts lines" },
      fact("Open connections", `${whole(connections.open)} of at most ${whole(connections.max)}`),
      fact("Memory", memory.max_bytes === null ? `${bytes(memory.resident_bytes)}, no limit` : `${bytes(memory.resident_bytes)} of at most ${bytes(memory.max_bytes)}`)),
    h("h4", {}, "Closed in the last minute, by reason"),
    rejected.length ? h("dl", { class: "facts lines" }, rejected.map(([reason, count]) => fact(code(reason), whole(count)))) : empty("None."),
  ];
}

function showLoad(status) {
  const found = causes(status);
  byId("overload").hidden = found.length === 0;
  byId("overload").textContent = found.length ? `Overloaded: ${found.join("; ")}.` : "";
  fill(byId("connections"), ...connectionsAndMemory(status, found));
}

async function refreshStatus() {
  try {
    const status = await get("/api/status");
    byId("version").textContent = `v${status.version}, up ${span(1_000 * status.uptime_s)}`;
    fill(byId("breaker"), ...shown(status));
    showLoad(status);
  } catch (problem) {
    fill(byId("breaker"), empty(problem.message));
    fill(byId("connections"), empty(problem.message));
  }
}

// Requests in flight, and how many may be.
function inFlight({ in_flight: requests, limit }) {
  return limit === null ? `${requests}` : `${requests} of ${limit}`;
}

async function refreshUpstreams() {
  try {
    const { upstreams } = await get("/api/upstreams");
    const rows = upstreams.flatMap((upstream) => (upstream.addresses.length ? upstream.addresses : [{}])
      .map((address) => ({ ...address, name: upstream.name, servers: upstream.servers, inFlight: inFlight(upstream) })));
    const failing = upstreams.flatMap(({ name, lookups }) => lookups.filter(({ reason }) => reason).map((lookup) => ({ ...lookup, name })));
    fill(byId("upstreams"), ...failing.map(lookup), rows.length === 0 ? empty("The file has no upstream.") : table("Upstream servers", [
      { title: "Upstream", cell: (row) => code(row.name) },
      { title: "Address", cell: (row) => code(row.address ?? row.servers.join(", ")) },
      { title: "Health", cell: (row) => health(row) },
      { title: "In flight", cell: (row) => named(row.inFlight) },
      { title: "Orders", cell: (row) => orders(row) },
      { title: "In the file", kind: "minor", cell: (row) => named(row.servers.join(", ")) },
    ], rows));
  } catch (problem) {
    fill(byId("upstreams"), empty(problem.message));
  }
}

// A name whose look-ups fail.
function lookup({ name, server, state, reason, since }) {
  const when = since ? `, since ${moment(Date.parse(since), Date.now())}` : "";
  return h("p", {}, badge(`look-up ${state}`, "bad"), " ", code(server), ` of ${name}: ${reason}${when}`);
}

const ORDERS = {
  drain: ["Drain", "It gets no new requests, but those of clients whose cookie selects it. This gateway only, until you enable it or the gateway ends."],
  disable: ["Disable", "It gets no new requests. Those in flight end as usual. This gateway only, until you enable it or the gateway ends."],
  enable: ["Enable", "It gets requests again, unless its health says otherwise."],
};

function orders({ name, address, state }) {
  if (!address) return "";
  const isOff = state === "drained" || state === "disabled";
  return (isOff ? ["enable"] : ["drain", "disable"]).map((order) =>
    h("button", { type: "button", onclick: () => give(order, name, address) }, ORDERS[order][0]));
}

async function give(order, name, address) {
  const [verb, text] = ORDERS[order];
  if (!(await confirm({ title: `${verb} ${address} of ${name}?`, text, yes: verb }))) return;
  try {
    await post(`/api/upstreams/${encodeURIComponent(name)}/${encodeURIComponent(address)}/${order}`);
    await refreshUpstreams();
  } catch (problem) {
    fill(byId("upstreams"), h("p", { class: "field-error" }, problem.message));
  }
}

function health({ address, servers, health: ok, state, reason, since, retry_after_ms: wait }) {
  if (!address) return servers.includes("demo") ? badge("built in", "good") : badge("no address", "bad");
  if (ok === "ok") return badge(ok, "good");
  const details = [reason, since && `since ${moment(Date.parse(since), Date.now())}`, wait > 0 && `retried in ${span(wait)}`].filter(Boolean);
  return [badge(state, "bad"), ` ${details.join(", ")}`];
}

/** Shown only if a listener has certificates. */
async function refreshCertificates() {
  try {
    const { certificates, more_certificates: more } = await get("/api/certificates");
    byId("certificates-card").hidden = certificates.length === 0;
    fill(byId("certificates"), table("Certificates of the listeners", [
      { title: "Certificate", cell: (row) => code(row.name) },
      { title: "State", cell: (row) => certificateState(row) },
      { title: "Expires", cell: (row) => row.not_after ? h("time", { title: row.not_after }, row.not_after.slice(0, 10)) : "" },
      { title: "From", kind: "minor", cell: (row) => named(row.cert ?? row.source) },
    ], certificates), more > 0 ? h("p", {}, `${whole(more)} more`) : null);
  } catch (problem) {
    fill(byId("certificates"), empty(problem.message));
  }
}

function certificateState({ error, warnings, expires_in_s: left }) {
  if (error) return [badge(left === null ? "missing" : "not replaced", "bad"), ` ${error.message}`];
  if (left <= 0) return badge("expired", "bad");
  return warnings.length ? [badge("warning", "warn"), ` ${warnings.join("; ")}`] : badge("ok", "good");
}

/** Updates the section from the samples of the shown range. */
export function show({ samples, span, redraws }) {
  if (!redraws) return;
  changes = breakerChanges(samples);
  sources.show(counts(samples, "sources", SOURCES), span);
}

export function start() {
  sources = new TimeChart(byId("sources"), byId("sources-legend"), { label: "Decisions per second, by source", word: ({ name }) => name });
  byId("breaker").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) setOverride(button.dataset.override);
  });
  every(EVERY_MS, refreshStatus);
  every(EVERY_MS, refreshUpstreams);
  every(CERTIFICATES_EVERY_MS, refreshCertificates);
}
