// Who was refused by what, and when: the latest refusal runs, as they come.

import { every, get } from "./api.js";
import { badge, byId, empty, fill, h, table } from "./dom.js";
import { clockMs, moment, whole } from "./format.js";
import { watch } from "./client.js";

const EVERY_MS = 2_000;

/** How many are listed at first, and what asking for more multiplies that by. */
const LISTED = 12;
const STEP = 4;
const MOST = 1_000;

/** How long somebody may type before it is asked. */
const TYPING_MS = 300;

let limit = LISTED;
let asked = 0;

/** What a text asks for: the key of that id, or an address as it is shown. Ids of keys have no colon. */
export function meant(text, keys) {
  if (text === "") return {};
  const isAddress = !keys.includes(text) && (text.includes(":") || /^\d+(\.\d+){3}$/.test(text));
  return isAddress ? { ip: text } : { key: text };
}

/**
 * Those that go on before those that are over. While they go on, by when they began: by their last
 * refusal they would change places with every look, under somebody's finger.
 */
export function ordered(runs) {
  const key = ({ open, first, last }) => (open ? `1 ${first}` : `0 ${last}`);
  return [...runs].sort((a, b) => (key(a) < key(b) ? 1 : -1));
}

function query() {
  const { client, rule } = byId("refusals-form").elements;
  const keys = [...byId("key-ids").options].map((option) => option.value);
  const wanted = { ...meant(client.value.trim(), keys), ...(rule.value && { rule: rule.value }), limit };
  return new URLSearchParams(wanted).toString();
}

/** Whether an address is shown as it is. A hash leads to nobody's buckets. */
const isPlain = (ip) => ip !== null && !ip.startsWith("h:");

function link(kind, id, from = "") {
  return h("button", {
    type: "button", class: "link", "aria-label": `Watch the buckets of ${id}`, data: { kind, id, ip: from },
  }, id);
}

function who({ key, ip }) {
  const whence = ip && h("span", { class: "muted block" }, h("span", { class: "minor" }, "from "), ip);
  if (key) return [h("span", { class: "muted" }, "key "), link("key", key, isPlain(ip) ? ip : ""), whence];
  if (!ip) return [h("span", { class: "muted" }, "unknown")];
  return [h("span", { class: "muted" }, "address "), isPlain(ip) ? link("ip", ip) : h("code", {}, ip)];
}

/** A moment to the millisecond for those who point at it. */
const time = (at) => h("time", { datetime: at, title: clockMs(Date.parse(at)) }, moment(Date.parse(at), Date.now()));

const COLUMNS = [
  { title: "Client", cell: who },
  { title: "Rule", cell: ({ rule, plan }) => [h("code", {}, rule), h("span", { class: "muted block" }, h("span", { class: "minor" }, "plan "), plan)] },
  { title: "First", kind: "minor", cell: ({ first }) => time(first) },
  { title: "Last", cell: ({ last, open }) => [time(last), " ", open ? badge("goes on", "bad") : null] },
  { title: "Refused", kind: "number", cell: ({ count }) => whole(count) },
  { title: "Tokens left", kind: "number minor", cell: ({ tokens }) => (tokens === null ? "–" : whole(tokens)) },
];

function note({ refusal_runs: runs, more, dropped }) {
  const shown = more > 0 ? `The latest ${whole(runs.length)} of ${whole(runs.length + more)} refusal runs` : `${whole(runs.length)} refusal run${runs.length === 1 ? "" : "s"}`;
  const lost = dropped > 0 ? ` ${whole(dropped)} earlier refusals were dropped.` : "";
  return `${shown} of this gateway. A run is one client’s refusals by one rule, each within 10 s of the one before.${lost}`;
}

async function refresh() {
  asked += 1;
  const mine = asked;
  try {
    const answer = await get(`/api/audit?${query()}`);
    if (mine !== asked) return;
    byId("refusals-note").textContent = note(answer);
    fill(byId("refusal-list"), answer.refusal_runs.length ? table("Latest refusals", COLUMNS, ordered(answer.refusal_runs))
      : empty(isNarrowed() ? "No refusal fits." : "Nobody has been refused."));
    byId("refusals-more").hidden = answer.more === 0 || limit === MOST;
  } catch (problem) {
    if (mine !== asked) return;
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
