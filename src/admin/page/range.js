// The shown range: its controls, and its samples. The live range comes from the event stream, others from
// `GET /api/samples`.

import { every, get } from "./api.js";
import { byId } from "./dom.js";
import { interval } from "./format.js";
import { Samples, shownSpan } from "./series.js";
import { linkOf, parseTimes, textOf } from "./times.js";
import * as view from "./view.js";
import { offsetText, setGateway } from "./zone.js";

/** Bounds of the time between two requests of a range that ends now. */
const LEAST_MS = 5_000;
const MOST_MS = 60_000;

/** Factor of "Zoom in" and "Zoom out". */
const FACTOR = 2;

const live = new Samples();
let fetched = null;
let stop = null;
let wait = LEAST_MS;
let consumers = [];

/** Whether the charts show something else than they should. */
let isStale = true;

const isLive = () => view.current().range === view.LIVE;
const isMoving = () => typeof view.current().range === "string";

/** Start and end of the shown range, in milliseconds. */
function ends(now) {
  const { range } = view.current();
  return typeof range === "string" ? { from: now - view.RANGES[range], to: now } : range;
}

/** What is shown: the samples, their sum if it is known, and the ends of a chart, in seconds. */
function shown() {
  if (isLive()) return { samples: live.list, span: shownSpan, isLive: true, range: ends(live.last?.at_ms ?? Date.now()) };
  const range = fetched ? { from: fetched.from_ms, to: fetched.to_ms } : ends(Date.now());
  return { samples: fetched?.samples ?? [], total: fetched?.total, span: () => [range.from / 1_000, range.to / 1_000], isLive: false, range };
}

/** Passes what is shown on; `changed` is false if only the newest sample of all has changed. */
function show(changed = true) {
  isStale ||= changed;
  if (!live.last) return;
  const state = { ...shown(), last: live.last, redraws: isStale && !document.hidden };
  if (state.redraws) isStale = false;
  for (const consumer of consumers) consumer(state);
}

/** Takes an event of the stream: the history, or one sample. */
export function take(event, data) {
  if (event === "history") live.reset(data);
  else live.push(data);
  show(isLive());
  if (isLive()) describe();
}

async function refresh() {
  const requested = view.current().range;
  const { from, to } = ends(Date.now());
  const query = new URLSearchParams({ from: new Date(from).toISOString(), to: new Date(to).toISOString() });
  try {
    const answer = await get(`/api/samples?${query}`);
    if (requested !== view.current().range) return;
    // The scale is the range asked for, also where the gateway began later.
    fetched = { ...answer, from_ms: from, to_ms: to };
    wait = Math.min(MOST_MS, Math.max(LEAST_MS, answer.step_ms));
    zoneOf(answer);
    describe();
    show();
    if (!isMoving() && to < Date.now()) stop?.();
  } catch (problem) {
    if (requested === view.current().range) byId("range-note").textContent = problem.message;
  }
}

function zoneOf({ time_zone: name, utc_offset_s: offset }) {
  if (offset !== undefined) window.dispatchEvent(new CustomEvent("gatewayzone", { detail: setGateway(name, offset) }));
}

/** The gateway's zone comes with the samples; the live range needs none, so they are asked for once. */
async function askZone() {
  try {
    zoneOf(await get("/api/samples?from=5s"));
  } catch {
    // The choice is then missing; nothing else depends on it.
  }
}

/** Says which range is shown, and in which zone. */
function describe() {
  const now = Date.now();
  const { from, to } = ends(now);
  // The clock may change within the range.
  const offsets = [...new Set([from, to].map((ms) => `UTC${offsetText(ms)}`))];
  byId("range-note").textContent = `${interval(from, to, now)} ${offsets.join(" → ")}`;
  byId("range-later").disabled = isMoving() || to >= now;
}

/** Shows a fixed range around what was wanted, within what is possible. */
export function zoom({ from, to }) {
  const now = Date.now();
  const length = Math.min(view.LONGEST_MS, Math.max(view.SHORTEST_MS, Math.ceil((to - from) / 1_000) * 1_000));
  const middle = (from + to) / 2;
  const end = Math.min(Math.ceil((middle + length / 2) / 1_000) * 1_000, Math.ceil(now / 1_000) * 1_000);
  view.change({ range: { from: end - length, to: end } });
}

/** Moves by a part of the range's length, or scales the length, around the middle. */
function adjust(move, scale) {
  const { from, to } = ends(Date.now());
  const length = to - from;
  const middle = (from + to) / 2 + move * length;
  zoom({ from: middle - (length * scale) / 2, to: middle + (length * scale) / 2 });
}

/** Reads the range that was typed. */
function typed(input) {
  const range = parseTimes(input.value, Date.now());
  const usable = range && view.fixed(linkOf({ from: range.from, to: range.to ?? Date.now() }));
  input.setCustomValidity(usable ? "" : "A time such as 10:03, 10:00–10:15 or 2026-11-22 10:03, from 10 seconds to 24 hours long.");
  if (input.reportValidity()) zoom(usable);
}

function apply({ range }, before) {
  const select = byId("range-select");
  select.value = typeof range === "string" ? range : "fixed";
  select.querySelector('[value="fixed"]').hidden = typeof range === "string";
  byId("range-at").value = typeof range === "string" ? "" : textOf(range);
  const same = before && JSON.stringify(range) === JSON.stringify(before.range);
  if (!same) {
    stop?.();
    stop = null;
    fetched = null;
    if (!isLive()) stop = every(() => wait, refresh);
  }
  describe();
  show();
}

/** `shows` get `{ samples, total, span, isLive, range, last, redraws }` after each change. */
export function start(shows) {
  consumers = shows;
  byId("range-select").addEventListener("change", (event) => event.target.value !== "fixed" && view.change({ range: event.target.value }));
  for (const [id, move, scale] of [["range-earlier", -0.5, 1], ["range-later", 0.5, 1], ["range-in", 0, 1 / FACTOR], ["range-out", 0, FACTOR]]) {
    byId(id).addEventListener("click", () => adjust(move, scale));
  }
  byId("range-form").addEventListener("submit", (event) => {
    event.preventDefault();
    typed(byId("range-at"));
  });
  byId("range-at").addEventListener("input", (event) => event.target.setCustomValidity(""));
  view.listen(apply);
  window.addEventListener("zonechange", () => apply(view.current(), view.current()));
  askZone();
}
