// What the page shows, kept in the fragment of its address: section, range, zone, filters, client. A link
// is text of strangers: each member has a fixed set of values or a bounded length, and is only ever text.

import { linkOf, parseTimes } from "./times.js";
import { ZONES } from "./zone.js";

export const SECTIONS = ["overview", "traffic", "clients", "quotas", "keys", "refusals", "buckets", "explain", "health", "limits", "changes", "learn"];

/** Moving ranges, in milliseconds up to now. The first is live. */
export const RANGES = { "5m": 300_000, "15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000 };

export const LIVE = "5m";

/** Kinds of refusal runs, as in `GET /api/audit`, and all of them. Without a kind: those that were refused. */
export const KINDS = ["limit", "unavailable", "unauthorized", "shadow", "all"];

/** Shortest fixed range, and the longest that the gateway keeps. */
export const SHORTEST_MS = 10_000;
export const LONGEST_MS = RANGES["24h"];

const MAX_TEXT = 200;

/** How long the sections of a page may take to load. */
const LOADING_MS = 10_000;

const EMPTY = {
  section: "overview", range: LIVE, zone: "browser", latency: "",
  who: "", rule: "", kind: "", at: "", all: false, client: null,
};

/** A text of a link without control characters, cut to a bounded length. */
// eslint-disable-next-line no-control-regex
const clean = (text) => (text ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "").trim().slice(0, MAX_TEXT);

const oneOf = (value, allowed, otherwise) => (allowed.includes(value) ? value : otherwise);

/** A fixed range `{ from, to }`; `null` if the text is none or too short, too long or without an end. */
export function fixed(text) {
  const range = text.includes("/") ? parseTimes(text, 0, "UTC") : null;
  if (!range || range.to === null) return null;
  const length = range.to - range.from;
  return length >= SHORTEST_MS && length <= LONGEST_MS && range.from > 0 ? range : null;
}

function clientOf(values) {
  const kind = values.has("key") ? "key" : "ip";
  const id = clean(values.get(kind));
  return id ? { kind, id, route: clean(values.get("route")), ip: clean(values.get("from")) } : null;
}

/** The view of a fragment. Unknown members and values are ignored. */
export function parse(fragment) {
  const [section, ...rest] = fragment.replace(/^#/, "").split("?");
  const values = new URLSearchParams(rest.join("?"));
  const range = clean(values.get("range"));
  return {
    section: oneOf(section, SECTIONS, EMPTY.section),
    range: Object.hasOwn(RANGES, range) ? range : fixed(range) ?? EMPTY.range,
    zone: oneOf(values.get("zone"), ZONES, EMPTY.zone),
    latency: clean(values.get("latency")),
    who: clean(values.get("who")),
    rule: clean(values.get("rule")),
    kind: oneOf(values.get("kind"), KINDS, EMPTY.kind),
    at: clean(values.get("at")),
    all: values.get("gateways") === "all",
    client: clientOf(values),
  };
}

/** The fragment of a view. Members with their default are left out. */
export function format(view) {
  const { client } = view;
  const range = typeof view.range === "string" ? view.range : linkOf(view.range);
  const values = Object.entries({
    range: range === EMPTY.range ? "" : range, zone: view.zone === EMPTY.zone ? "" : view.zone, latency: view.latency,
    who: view.who, rule: view.rule, kind: view.kind, at: view.at, gateways: view.all ? "all" : "",
    ...(client && { [client.kind]: client.id, from: client.ip, route: client.route }),
  }).filter(([, value]) => value);
  // Colons and slashes of times and addresses may stay as they are.
  const text = new URLSearchParams(values).toString().replaceAll("%3A", ":").replaceAll("%2F", "/");
  return `#${view.section}${text && `?${text}`}`;
}

/** A view that shows the same later: a moving range that is not live becomes a fixed one. */
export function frozen(view, now) {
  if (typeof view.range !== "string" || view.range === LIVE) return view;
  return { ...view, range: { from: now - RANGES[view.range], to: now } };
}

let shown = EMPTY;
const listeners = [];

export const current = () => shown;

/** Calls `listener(view, before)` after each change. */
export const listen = (listener) => listeners.push(listener);

function set(view) {
  const before = shown;
  shown = view;
  for (const listener of listeners) listener(view, before);
}

/** Changes members of the view. `replace` does so without a step of "Back". */
export function change(members, { replace = false } = {}) {
  const view = { ...shown, ...members };
  const fragment = format(view);
  if (fragment === format(shown)) return;
  window.history[replace ? "replaceState" : "pushState"](null, "", fragment);
  set(view);
}

/** Moves to a section, also for the keyboard and screen readers. */
export function reveal(section, behavior = "auto") {
  document.getElementById(section).scrollIntoView({ block: "start", behavior });
  document.getElementById(`${section}-title`).focus({ preventScroll: true });
}

function isInSight(section) {
  const { top, bottom } = document.getElementById(section).getBoundingClientRect();
  return top < window.innerHeight && bottom > 0;
}

/** Changes the view and moves to its section. */
export function go(members) {
  change(members);
  reveal(shown.section);
}

/** Shows the view of the address, now and after "Back" and "Forward". */
export function start() {
  const show = () => {
    const { section } = shown;
    set(parse(window.location.hash));
    if (shown.section !== section || !isInSight(section)) reveal(shown.section);
  };
  window.addEventListener("popstate", show);
  show();
  if (shown.section !== EMPTY.section) hold(shown.section);
}

/** Keeps the section of a link in sight while the sections above it load, until the reader does something. */
function hold(section) {
  const main = document.querySelector("main");
  const sizes = new ResizeObserver(() => reveal(section, "instant"));
  sizes.observe(main);
  const end = () => sizes.disconnect();
  setTimeout(end, LOADING_MS);
  for (const event of ["wheel", "keydown", "pointerdown", "touchstart"]) window.addEventListener(event, end, { once: true, passive: true });
}
