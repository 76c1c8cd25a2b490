// The latest refusal runs: client, rule and time.

import { every, get } from "./api.js";
import { badge, byId, empty, fill, h, table } from "./dom.js";
import { clockMs, moment, whole } from "./format.js";
import { watch } from "./client.js";

const EVERY_MS = 2_000;

/** Initial number of rows, and the factor of "Show more". */
const LISTED = 12;
const STEP = 4;
const MOST = 1_000;

/** Delay after typing before a request is sent. */
const TYPING_MS = 300;

let limit = LISTED;
let requests = 0;

/** Interprets a search text as a key id or an address. Key ids have no colon. */
export function searchTerm(text, keys) {
  if (text === "") return {};
  const isAddress = !keys.includes(text) && (text.includes(":") || /^\d+(\.\d+){3}$/.test(text));
  return isAddress ? { ip: text } : { key: text };
}

/**
 * Sorts open runs before ended ones. Open runs are sorted by their first refusal, so that they keep
 * their rows while they continue.
 */
export function ordered(runs) {
  const key = ({ open, first, last }) => (open ? `1 ${first}` : `0 ${last}`);
  return [...runs].sort((a, b) => (key(a) < key(b) ? 1 : -1));
}

function query() {
  const { client, rule } = byId("refusals-form").elements;
  const keys = [...byId("key-ids").options].map((option) => option.value);
  const wanted = { ...searchTerm(client.value.trim(), keys), ...(rule.value && { rule: rule.value }), limit };
  return new URLSearchParams(wanted).toString();
}

/** Whether an address is not hashed. A hash cannot be used to look up buckets. */
const isPlain = (ip) => ip !== null && !ip.startsWith("h:");

function link(kind, id, from = "") {
  return h("button", {
    type: "button", class: "link", "aria-label": `Watch the buckets of ${id}`, data: { kind, id, ip: from },
  }, id);
}

function clientCell({ key, ip }) {
  const whence = ip && h("span", { class: "muted block" }, h("span", { class: "minor" }, "from "), ip);
  if (key) return [h("span", { class: "muted" }, "key "), link("key", key, isPlain(ip) ? ip : ""), whence];
  if (!ip) return [h("span", { class: "muted" }, "unknown")];
  return [h("span", { class: "muted" }, "address "), isPlain(ip) ? link("ip", ip) : h("code", {}, ip)];
}

/** A time, with milliseconds as tooltip. */
const time = (at) => h("time", { datetime: at, title: clockMs(Date.parse(at)) }, moment(Date.parse(at), Date.now()));

const COLUMNS = [
  { title: "Client", cell: clientCell },
  { title: "Rule", cell: ({ rule, plan }) => [h("code", {}, rule), h("span", { class: "muted block" }, h("span", { class: "minor" }, "plan "), plan)] },
  { title: "First", kind: "minor", cell: ({ first }) => time(first) },
  { title: "Last", cell: ({ last, open }) => [time(last), " ", open ? badge("open", "bad") : null] },
  { title: "Refused", kind: "number", cell: ({ count }) => whole(count) },
  { title: "Tokens left", kind: "number minor", cell: ({ tokens }) => (tokens === null ? "–" : whole(tokens)) },
];

function note({ refusal_runs: runs, more, dropped }) {
  const shown = more > 0 ? `The latest ${whole(runs.length)} of ${whole(runs.length + more)} refusal runs` : `${whole(runs.length)} refusal run${runs.length === 1 ? "" : "s"}`;
  const lost = dropped > 0 ? ` ${whole(dropped)} earlier refusals were dropped.` : "";
  return `${shown} of this gateway. A run is one client’s refusals by one rule, each within 10 s of the previous one.${lost}`;
}

async function refresh() {
  requests += 1;
  const own = requests;
  try {
    const answer = await get(`/api/audit?${query()}`);
    if (own !== requests) return;
    byId("refusals-note").textContent = note(answer);
    fill(byId("refusal-list"), answer.refusal_runs.length ? table("Latest refusals", COLUMNS, ordered(answer.refusal_runs))
      : empty(isNarrowed() ? "No matching refusals." : "No refusals."));
    byId("refusals-more").hidden = answer.more === 0 || limit === MOST;
  } catch (problem) {
    if (own !== requests) return;
    byId("refusals-note").textContent = "The latest of this gateway.";
    byId("refusals-more").hidden = true;
    fill(byId("refusal-list"), empty(problem.message));
  }
}

function isNarrowed() {
  const { client, rule } = byId("refusals-form").elements;
  return client.value.trim() !== "" || rule.value !== "";
}

export function start() {
  every(EVERY_MS, refresh);
  let typing = null;
  const narrow = () => {
    limit = LISTED;
    clearTimeout(typing);
    refresh();
  };
  const form = byId("refusals-form");
  form.elements.client.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(narrow, TYPING_MS);
  });
  form.elements.rule.addEventListener("change", narrow);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    narrow();
  });
  byId("refusals-more").addEventListener("click", () => {
    limit = Math.min(limit * STEP, MOST);
    refresh();
  });
  byId("refusal-list").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) watch({ kind: button.dataset.kind, id: button.dataset.id, ip: button.dataset.ip }, true);
  });
}
