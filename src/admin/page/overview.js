// The tiles and the two charts at the top.

import { byId, fill, h, named } from "./dom.js";
import { amount, latency, percent, span as length, whole } from "./format.js";
import { REST, summed, TITLES, total, WORDS } from "./outcomes.js";
import { byPlan, byRule } from "./series.js";
import { TimeChart } from "./timechart.js";
import { linkOf } from "./times.js";
import * as view from "./view.js";

/** The tiles of the live range show averages over this many seconds, because values of one second vary too much. */
const RECENT_S = 5;

const STATES = { closed: "good", half_open: "warn", open: "bad" };

let plans;
let rules;

/** The name of a row of the chart by rule. */
function word({ name, kind }) {
  if (kind === "refused") return ["refused by ", ...named(name === REST ? "other rules" : name)];
  if (kind === "shadow_refused") return ["shadow: ", ...named(name), " would refuse"];
  return [WORDS[kind]];
}

export function start() {
  byId("tiles").addEventListener("click", (event) => {
    const { runs } = event.target.closest("button")?.dataset ?? {};
    if (runs) showRuns(runs);
  });
  plans = new TimeChart(byId("by-plan"), byId("by-plan-legend"), {
    label: "Requests per second by plan and outcome", columns: TITLES, nameless: "no plan",
  });
  rules = new TimeChart(byId("by-rule"), byId("by-rule-legend"), { label: "Requests per second by the rule that refused them", word });
}

/** A tile; `runs` is the kind of refusal runs that a button at its end shows. */
function tile(title, value, note, kind, runs) {
  const button = runs && h("button", { type: "button", class: "link", data: { runs }, "aria-label": `Clients of ${title}` }, "clients");
  return h("div", { class: "tile", data: { kind } },
    h("dt", {}, title), h("dd", {}, h("strong", {}, value), h("span", { class: "muted" }, note), button));
}

/** Shows the refusal runs of a kind in the shown range. */
function showRuns(kind) {
  const { range } = view.current();
  const at = range === view.LIVE ? "5m" : typeof range === "string" ? range : linkOf(range);
  view.go({ section: "refusals", who: "", rule: "", kind, at });
}

/** The share of decisions by Redis. */
function byRedis({ sources }) {
  const all = Object.values(sources).reduce((sum, count) => sum + count, 0);
  return all === 0 ? "no decisions" : `${percent(sources.redis ?? 0, all)} by Redis`;
}

/** The tiles that count requests of the shown range. */
function requestTiles({ samples, total: inAll, isLive, last }) {
  const sum = summed(isLive ? samples.slice(-RECENT_S) : samples);
  const all = total(sum);
  if (sum.ms === 0) return ["Requests/s", "Refused", "401", "5xx", "p99"].map((title) => tile(title, "–", "no samples"));
  const rate = (count) => (count * 1_000) / sum.ms;
  const share = (count, kind) => [percent(count, all), isLive ? `${amount(rate(count))} per second` : amount(count), count > 0 ? kind : undefined];
  const tiles = [
    tile("Requests/s", amount(rate(all)), isLive ? `${whole(last.in_flight)} in flight` : `${amount(all)} in ${length(sum.ms)}`),
    tile("Refused", ...share(sum.refused + sum.unavailable, "warn"), "limit"),
    tile("401", ...share(sum.unauthorized, "warn"), "unauthorized"),
    tile("5xx", ...share(sum.errors, "bad")),
  ];
  const { p50_ms: p50, p99_ms: p99 } = (inAll ?? samples.at(-1))?.latency ?? {};
  return p99 === undefined ? tiles : [...tiles, tile("p99", latency(p99), `p50 ${latency(p50)}`)];
}

function stateTiles(last) {
  const shared = last.breaker !== null;
  return [
    tile("Breaker", shared ? last.breaker.replace("_", " ") : "no Redis", shared ? byRedis(last) : "limits are not shared", STATES[last.breaker]),
    tile("Gateways", shared ? whole(last.gateways) : "1", shared ? "share these limits" : `${whole(last.local_buckets)} local buckets`),
    tile("Configuration", `no. ${last.generation}`, last.config_valid ? "the file is applied" : "the saved file was rejected",
      last.config_valid ? "good" : "bad"),
  ];
}

export function show(state) {
  fill(byId("tiles"), ...requestTiles(state), ...stateTiles(state.last));
  if (!state.redraws) return;
  plans.show(byPlan(state.samples), state.span);
  rules.show(byRule(state.samples), state.span);
}
