// The latest refusal runs: client, rule and time, filtered.

import { every } from "./api.js";
import { EVERY_KIND, runsOf } from "./audit.js";
import { byId, empty, fill, h } from "./dom.js";
import { interval, moment, whole } from "./format.js";
import { listsAll } from "./policy.js";
import { missing, onRunClick, runTable } from "./runs.js";
import { linkOf, parseTimes, textOf } from "./times.js";
import * as view from "./view.js";

const EVERY_MS = 2_000;

/** Initial number of rows, and the factor of "Show more". */
const LISTED = 12;
const STEP = 4;
const MOST = 1_000;

/** Delay after typing before a request is sent. */
const TYPING_MS = 300;

/** "Around it" adds this much on both sides of a time. */
const AROUND_MS = 5 * 60_000;

let limit = LISTED;
let requests = 0;
let typing = null;
let opened = null;

const form = () => byId("refusals-form").elements;

/** The range of the filter; `null` without one. */
const rangeOf = (at) => (at ? parseTimes(at, Date.now()) : null);

function when({ at }) {
  const range = rangeOf(at);
  if (!range) return "";
  return range.to === null ? ` in the last ${at}` : `, ${interval(range.from, range.to, Date.now())}`;
}

function note({ refusal_runs: runs, more, dropped, incomplete }, now) {
  const shown = more > 0 ? `The latest ${whole(runs.length)} of ${whole(runs.length + more)} refusal runs` : `${whole(runs.length)} refusal run${runs.length === 1 ? "" : "s"}`;
  const lost = dropped > 0 ? ` ${whole(dropped)} earlier refusals were dropped.` : "";
  return `${shown} of ${now.all ? "all gateways" : "this gateway"}${when(now)}. A run is one client’s refusals by one rule, each within 10 s of the previous one.${lost}${missing(incomplete)}`;
}

/** Says that nothing was found, and what else to look for. */
function nothing({ kept_since: since }, { who, rule, kind, at, all }) {
  const kept = since ? ` ${all ? "Those of this gateway" : "Refusals"} are kept since ${moment(Date.parse(since), Date.now())}.` : "";
  if (!who && !rule && !kind && !at) return empty(`No refusals.${kept}`);
  const range = rangeOf(at);
  const button = (text, members) => h("button", { type: "button", data: { view: JSON.stringify(members) } }, text);
  return [empty(`No matching refusals.${kept}`), h("div", { class: "actions" },
    range && range.to !== null && button("Five minutes before and after", { at: linkOf({ from: range.from - AROUND_MS, to: range.to + AROUND_MS }) }),
    range && button("At any time", { at: "" }),
    kind !== EVERY_KIND && button("Of every kind", { kind: EVERY_KIND }),
    rule && button("By every rule", { rule: "" }),
    !all && listsAll() && button("Of all gateways", { all: true }))];
}

async function refresh() {
  requests += 1;
  const own = requests;
  const now = view.current();
  try {
    const answer = await runsOf(now, limit);
    if (own !== requests) return;
    byId("refusals-note").textContent = note(answer, now);
    byId("refusals-all").hidden = !listsAll();
    fill(byId("refusal-list"), answer.refusal_runs.length ? runTable("Latest refusals", answer.refusal_runs, opened) : nothing(answer, now));
    byId("refusals-more").hidden = !answer.more || limit === MOST;
  } catch (problem) {
    if (own !== requests) return;
    byId("refusals-note").textContent = `The latest of ${now.all ? "all gateways" : "this gateway"}.`;
    byId("refusals-more").hidden = true;
    fill(byId("refusal-list"), empty(problem.message),
      now.all && h("div", { class: "actions" }, h("button", { type: "button", data: { view: '{"all":false}' } }, "Only this gateway")));
  }
}

/** Changes the filter, together with the client that is being typed. */
function narrow(members, options) {
  clearTimeout(typing);
  typing = null;
  view.change({ who: form().client.value.trim(), ...members }, options);
}

/** Takes what was typed as the time: kept as it is if it moves ("15m"), or else as a fixed range. */
function typedTime(input) {
  const text = input.value.trim();
  const range = parseTimes(text, Date.now());
  input.setCustomValidity(text === "" || range ? "" : "A time such as 10:03, 10:00–10:15, 2026-11-22 10:03 or 15m.");
  if (!input.reportValidity()) return;
  narrow({ at: !range ? "" : range.to === null ? text : linkOf(range) });
}

/** Shows the filter of the view in the form. What is being typed is left alone. */
function apply(now, before) {
  const { client, rule, kind, at, all } = form();
  const range = rangeOf(now.at);
  const shown = range && range.to !== null ? textOf(range) : now.at;
  if (typing === null && client.value.trim() !== now.who) client.value = now.who;
  at.value = shown;
  if (![...rule.options].some((option) => option.value === now.rule)) rule.append(h("option", { value: now.rule }, now.rule));
  rule.value = now.rule;
  kind.value = now.kind;
  all.checked = now.all;
  if (["who", "rule", "kind", "at", "all", "zone"].every((name) => now[name] === before[name])) return;
  limit = LISTED;
  refresh();
}

export function start() {
  every(EVERY_MS, refresh);
  const { client, rule, kind, at, all } = form();
  const typed = () => narrow({}, { replace: true });
  client.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(typed, TYPING_MS);
  });
  client.addEventListener("change", typed);
  rule.addEventListener("change", () => narrow({ rule: rule.value }));
  kind.addEventListener("change", () => narrow({ kind: kind.value }));
  all.addEventListener("change", () => narrow({ all: all.checked }));
  at.addEventListener("input", () => at.setCustomValidity(""));
  at.addEventListener("change", () => typedTime(at));
  byId("refusals-form").addEventListener("submit", (event) => {
    event.preventDefault();
    typedTime(at);
  });
  byId("refusals-more").addEventListener("click", () => {
    limit = Math.min(limit * STEP, MOST);
    refresh();
  });
  onRunClick(byId("refusal-list"), (run) => {
    opened = opened === run ? null : run;
    refresh();
  });
  view.listen(apply);
}
