// Samples of the last minutes, as the rows of a stacked chart. Pure: no page, no clock.

/** The most and the least that is shown: a gateway that has just started fills a minute first. */
export const SHOWN_S = 300;
const LEAST_S = 60;

/** How many names a chart tells apart; the rest is one. */
const NAMED = 6;

export const OTHERS = "others";

/** The samples of the last minutes, the newest last. */
export class Samples {
  list = [];

  reset(samples) {
    this.list = samples.slice(-SHOWN_S);
  }

  push(sample) {
    this.list.push(sample);
    if (this.list.length > SHOWN_S) this.list.shift();
  }

  get last() {
    return this.list.at(-1);
  }
}

const perSecond = (count, sample) => ((count ?? 0) * 1_000) / sample.span_ms;

/** The names with the most to show, in a stable order; `weigh(sample)` is `[name, weight]`s. */
function names(samples, weigh) {
  const weights = new Map();
  for (const sample of samples) {
    for (const [name, weight] of weigh(sample)) weights.set(name, (weights.get(name) ?? 0) + weight);
  }
  const sorted = [...weights].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return { shown: sorted.slice(0, NAMED).sort(), rest: new Set(sorted.slice(NAMED)) };
}

/**
 * `{ times, rows }` of a table in each sample (`plans`, `rules`), allowed below and refused on top.
 * Rows are `{ name, kind, values }`, values per second.
 */
export function stacked(samples, member) {
  const rowsOf = (sample) => Object.values(sample[member]);
  // Shadow rules are few: a colour and a column only where one would have refused.
  const isTried = samples.some((sample) => rowsOf(sample).some((row) => row.shadow_refused > 0));
  const kinds = isTried ? ["allowed", "refused", "shadow_refused"] : ["allowed", "refused"];
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

/** The same of a table of plain counts (`sources`); `names` says what each is called, in order. */
export function counts(samples, member, names) {
  const rows = Object.entries(names).map(([kind, name]) => ({
    name,
    kind,
    values: samples.map((sample) => perSecond(sample[member][kind], sample)),
  }));
  return { times: samples.map((sample) => sample.at_ms / 1_000), rows };
}

/** The span that a chart over these times shows, in seconds. */
export function shownSpan(first, last) {
  const shown = Math.min(SHOWN_S, Math.max(LEAST_S, last - first));
  return [last - shown, last];
}

/** Rows one upon the other, as a chart draws them. */
export function heaped(rows) {
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

/** Moments at which the breaker changed, the newest first: `{ at_ms, to }`. */
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
