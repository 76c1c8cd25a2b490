// Converts the samples of the last minutes to rows of a stacked chart. Pure: no DOM, no clock.

/** Maximum and minimum time span of a chart, in seconds. */
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

const perSecond = (count, sample) => ((count ?? 0) * 1_000) / sample.span_ms;

/** The names with the largest weights, sorted; `weigh(sample)` returns `[name, weight]` pairs. */
function names(samples, weigh) {
  const weights = new Map();
  for (const sample of samples) {
    for (const [name, weight] of weigh(sample)) weights.set(name, (weights.get(name) ?? 0) + weight);
  }
  const sorted = [...weights].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return { shown: sorted.slice(0, MAX_NAMES).sort(), rest: new Set(sorted.slice(MAX_NAMES)) };
}

/**
 * `{ times, rows }` for a member of the samples (`plans`, `rules`), allowed below, refused on top.
 * Rows are `{ name, kind, values }`, values per second.
 */
export function stacked(samples, member) {
  const rowsOf = (sample) => Object.values(sample[member]);
  // Shadow refusals get a colour and a column only if there are any.
  const hasShadow = samples.some((sample) => rowsOf(sample).some((row) => row.shadow_refused > 0));
  const kinds = hasShadow ? ["allowed", "refused", "shadow_refused"] : ["allowed", "refused"];
  const { shown, rest } = names(samples, (sample) =>
    Object.entries(sample[member]).map(([name, row]) => [name, row.allowed + row.refused + (row.shadow_refused ?? 0)]));
  const value = (sample, name, kind) => perSecond(sample[member][name]?.[kind], sample);
  const rows = [];
  for (const kind of kinds) {
    for (const name of shown) rows.push({ name, kind, values: samples.map((sample) => value(sample, name, kind)) });
    if (rest.size === 0) continue;
    const sum = (sample) => [...rest].reduce((all, name) => all + value(sample, name, kind), 0);
    rows.push({ name: OTHERS, kind, values: samples.map(sum) });
  }
  return { times: samples.map((sample) => sample.at_ms / 1_000), rows };
}

/** `{ times, rows }` for a member with plain counts (`sources`); `names` are the labels, in order. */
export function counts(samples, member, names) {
  const rows = Object.entries(names).map(([kind, name]) => ({
    name,
    kind,
    values: samples.map((sample) => perSecond(sample[member][kind], sample)),
  }));
  return { times: samples.map((sample) => sample.at_ms / 1_000), rows };
}

/** The time span of a chart, in seconds. */
export function shownSpan(first, last) {
  const shown = Math.min(MAX_S, Math.max(MIN_S, last - first));
  return [last - shown, last];
}

/** Cumulative sums of the rows, for a stacked chart. */
export function cumulative(rows) {
  const sums = [];
  return rows.map(({ values }) => values.map((value, index) => (sums[index] = (sums[index] ?? 0) + value)));
}

/** Requests and refusals per second over the last `seconds`. */
export function recent(samples, seconds) {
  const last = samples.slice(-seconds);
  const all = { allowed: 0, refused: 0, ms: 0 };
  for (const sample of last) {
    all.ms += sample.span_ms;
    for (const row of Object.values(sample.plans)) {
      all.allowed += row.allowed;
      all.refused += row.refused;
    }
  }
  const rate = (count) => (all.ms === 0 ? 0 : (count * 1_000) / all.ms);
  return { allowed: rate(all.allowed), refused: rate(all.refused) };
}

/** Transitions of the breaker, the newest first: `{ at_ms, to, times }`. */
export function breakerChanges(samples) {
  const changes = [];
  for (let index = 1; index < samples.length; index += 1) {
    const [before, sample] = [samples[index - 1], samples[index]];
    for (const [to, count] of Object.entries(sample.transitions)) {
      const times = count - (before.transitions[to] ?? 0);
      if (times > 0) changes.unshift({ at_ms: sample.at_ms, to, times });
    }
  }
  return changes;
}
