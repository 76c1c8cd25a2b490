// The tiles and the two charts at the top.

import { byId, fill, h } from "./dom.js";
import { amount, percent, whole } from "./format.js";
import { Stacked } from "./chart.js";
import { recent, stacked } from "./series.js";

/** The tiles show averages over this many seconds, because values of one second vary too much. */
const RECENT_S = 5;

const STATES = { closed: "good", half_open: "warn", open: "bad" };

let plans;
let rules;

export function start() {
  plans = new Stacked(byId("by-plan"), byId("by-plan-legend"), "Requests per second by plan, allowed and refused");
  rules = new Stacked(byId("by-rule"), byId("by-rule-legend"), "Decisions per second by rule, allowed and refused");
}

function tile(title, value, note, kind) {
  return h("div", { class: "tile", data: { kind } },
    h("dt", {}, title), h("dd", {}, h("strong", {}, value), note && h("span", { class: "muted" }, note)));
}

/** The share of decisions by Redis. */
function byRedis({ sources }) {
  const all = Object.values(sources).reduce((sum, count) => sum + count, 0);
  return all === 0 ? "no decisions" : `${percent(sources.redis ?? 0, all)} decided by Redis`;
}

export function show(samples) {
  const sample = samples.last;
  if (!sample) return;
  const { allowed, refused } = recent(samples.list, RECENT_S);
  const all = allowed + refused;
  const shared = sample.breaker !== null;
  fill(byId("tiles"),
    tile("Requests/s", amount(all), `${whole(sample.in_flight)} in flight`),
    tile("Refused", percent(refused, all), `${amount(refused)} per second`, refused > 0 ? "warn" : undefined),
    tile("Breaker", shared ? sample.breaker.replace("_", " ") : "no Redis", shared ? byRedis(sample) : "limits are not shared", STATES[sample.breaker]),
    tile("Gateways", shared ? whole(sample.gateways) : "1", shared ? "share these limits" : `${whole(sample.local_buckets)} local buckets`),
    tile("Configuration", `no. ${sample.generation}`, sample.config_valid ? "the file is applied" : "the saved file was rejected",
      sample.config_valid ? "good" : "bad"));
  if (document.hidden) return;
  plans.show(stacked(samples.list, "plans"));
  rules.show(stacked(samples.list, "rules"));
}
