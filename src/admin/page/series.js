// Converts samples to rows of charts. Pure: no DOM, no clock.

import { OUTCOMES, requestsOf } from "./outcomes.js";

/** Maximum and minimum time span of a live chart, in seconds. */
export const MAX_S = 300;
const MIN_S = 60;

/** Maximum number of names in a chart; the others are added up. */
const MAX_NAMES = 6;

export const OTHERS = "others";

/** The last samples, the newest last. */
export class Samples {
  list = [];

  reset(samples) {
    this.list = samples.slice(-MAX_S);
  }

  push(sample) {
    this.list.push(sample);
    if (this.list.length > MAX_S) this.list.shift();
  }

  get last() {
    return this.list.at(-1);
  }
}

export const perSecond = (count, sample) => ((count ?? 0) * 1_000) / sample.span_ms;

const timesOf = (samples) => samples.map((sample) => sample.at_ms / 1_000);

/** The names with the largest weights, sorted; `weigh(sample)` returns `[name, weight]` pairs. */
function names(samples, weigh) {
  const weights = new Map();
  for (const sample of samples) {
    for (const [name, weight] of weigh(sample)) weights.set(name, (weights.get(name) ?? 0) + weight);
  }
  const sorted = [...weights].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return { shown: sorted.slice(0, MAX_NAMES).sort(), rest: new Set(sorted.slice(MAX_NAMES)) };
}

/** Rows of one kind: the shown names, and one row for the rest. */
function rowsOf(samples, { shown, rest }, kind, value) {
  const rows = shown.map((name) => ({ name, kind, values: samples.map((sample) => value(sample, name)) }));
  if (rest.size === 0) return rows;
  const sum = (sample) => [...rest].reduce((all, name) => all + value(sample, name), 0);
  return [...rows, { name: OTHERS, kind, values: samples.map(sum) }];
}

/** The outcomes that occur, and always "allowed" and "refused", in the order of the stack. */
function occurring(samples) {
  const seen = new Set(samples.flatMap((sample) => Object.entries(requestsOf(sample)).filter(([, count]) => count > 0).map(([name]) => name)));
  return OUTCOMES.filter((outcome) => outcome === "allowed" || outcome === "refused" || seen.has(outcome));
}

/**
 * `{ times, rows }` of the requests by plan: allowed below, the other outcomes on top. Each request is in
 * exactly one row. Rows are `{ name, kind, values }`, values per second.
 */
export function byPlan(samples) {
  const chosen = names(samples, ({ plans }) =>
    Object.entries(plans ?? {}).map(([name, row]) => [name, OUTCOMES.reduce((sum, outcome) => sum + (row[outcome] ?? 0), 0)]));
  const rows = occurring(samples).flatMap((kind) =>
    rowsOf(samples, chosen, kind, (sample, name) => perSecond(sample.plans?.[name]?.[kind], sample)));
  return { times: timesOf(samples), rows };
}

/**
 * `{ times, rows, lines }` of the requests by the rule that refused them: the allowed ones in one row, then
 * one row for each rule, then the other outcomes. Each request is in exactly one row. `lines` are what rules
 * in shadow mode would have refused: these requests are in the rows already.
 */
export function byRule(samples) {
  const times = timesOf(samples);
  const kindsOf = (kind) => names(samples, ({ rules }) =>
    Object.entries(rules ?? {}).filter(([, row]) => row[kind] > 0).map(([name, row]) => [name, row[kind]]));
  const of = (kind) => rowsOf(samples, kindsOf(kind), kind, (sample, name) => perSecond(sample.rules?.[name]?.[kind], sample));
  const single = (kind) => ({ name: "", kind, values: samples.map((sample) => perSecond(requestsOf(sample)[kind], sample)) });
  const others = occurring(samples).filter((kind) => kind !== "allowed" && kind !== "refused").map(single);
  return { times, rows: [single("allowed"), ...of("refused"), ...others], lines: of("shadow_refused") };
}

/** `{ times, rows }` of the errors and failures of a member (`routes`, `upstreams`), without rows of 0. */
export function errorsBy(samples, member) {
  const rows = ["errors", "failures"].flatMap((kind) => {
    const chosen = names(samples, (sample) =>
      Object.entries(sample[member] ?? {}).filter(([, row]) => row[kind] > 0).map(([name, row]) => [name, row[kind]]));
    return rowsOf(samples, chosen, kind, (sample, name) => perSecond(sample[member]?.[name]?.[kind], sample));
  });
  return { times: timesOf(samples), rows };
}

/** `{ times, rows }` for a member with plain counts (`sources`, `statuses`); `names` are the labels, in order. */
export function counts(samples, member, names) {
  const rows = Object.entries(names).map(([kind, name]) => ({
    name,
    kind,
    values: samples.map((sample) => perSecond(sample[member]?.[kind], sample)),
  }));
  return { times: timesOf(samples), rows };
}

/** `{ times, rows }` of latencies in milliseconds; `of(sample)` returns the row with `p50_ms` and `p99_ms`. */
export function latencies(samples, of) {
  const line = (kind, name) => ({ name, kind, values: samples.map((sample) => of(sample)?.[`${kind}_ms`] ?? null) });
  return { times: timesOf(samples), rows: [line("p50", "p50"), line("p99", "p99")] };
}

/** The median of values with weights; `null` if there are none. */
function median(pairs) {
  const sorted = pairs.filter(([value, weight]) => value !== null && value !== undefined && weight > 0).sort((a, b) => a[0] - b[0]);
  const half = sorted.reduce((sum, [, weight]) => sum + weight, 0) / 2;
  let sum = 0;
  for (const [value, weight] of sorted) {
    sum += weight;
    if (sum >= half) return value;
  }
  return null;
}

/**
 * One row for each name of a member (`routes`, `upstreams`): counts over all samples, the median of the p50
 * and the highest p99.
 */
export function perName(samples, member) {
  const rows = new Map();
  for (const sample of samples) {
    for (const [name, row] of Object.entries(sample[member] ?? {})) {
      if (!rows.has(name)) rows.set(name, { name, requests: 0, errors: 0, failures: 0, halves: [], p99_ms: null });
      const sum = rows.get(name);
      for (const count of ["requests", "errors", "failures"]) sum[count] += row[count] ?? 0;
      sum.halves.push([row.p50_ms, row.requests ?? 0]);
      if (row.p99_ms !== null && row.p99_ms !== undefined) sum.p99_ms = Math.max(sum.p99_ms ?? 0, row.p99_ms);
    }
  }
  return [...rows.values()].map(({ halves, ...row }) => ({ ...row, p50_ms: median(halves) }));
}

/** The time span of a live chart, in seconds. */
export function shownSpan(first, last) {
  const shown = Math.min(MAX_S, Math.max(MIN_S, last - first));
  return [last - shown, last];
}

/** Cumulative sums of the rows, for a stacked chart. */
export function cumulative(rows) {
  const sums = [];
  return rows.map(({ values }) => values.map((value, index) => (sums[index] = (sums[index] ?? 0) + value)));
}

/** Transitions of the breaker, the newest first: `{ at_ms, to, times }`. */
export function breakerChanges(samples) {
  const changes = [];
  for (let index = 1; index < samples.length; index += 1) {
    const [before, sample] = [samples[index - 1], samples[index]];
    for (const [to, count] of Object.entries(sample.transitions)) {
      const earlier = before.transitions[to] ?? 0;
      // Counts begin again with a new process.
      const times = count < earlier ? count : count - earlier;
      if (times > 0) changes.unshift({ at_ms: sample.at_ms, to, times });
    }
  }
  return changes;
}
