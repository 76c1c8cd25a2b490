// Ticks of the last minutes, as the rows of a stacked chart. Pure: no page, no clock.

/** The most and the least that is shown: a gateway that has just started fills a minute first. */
export const SHOWN_S = 300;
const LEAST_S = 60;

/** How many names a chart tells apart; the rest is one. */
const NAMED = 6;

export const OTHERS = "others";

/** The ticks of the last minutes, the newest last. */
export class Ticks {
  list = [];

  reset(ticks) {
    this.list = ticks.slice(-SHOWN_S);
  }

  push(tick) {
    this.list.push(tick);
    if (this.list.length > SHOWN_S) this.list.shift();
  }

  get last() {
    return this.list.at(-1);
  }
}

const perSecond = (count, tick) => ((count ?? 0) * 1_000) / tick.span_ms;

/** The names with the most to show, in a stable order; `weigh(tick)` is `[name, weight]`s. */
function names(ticks, weigh) {
  const weights = new Map();
  for (const tick of ticks) {
    for (const [name, weight] of weigh(tick)) weights.set(name, (weights.get(name) ?? 0) + weight);
  }
  const sorted = [...weights].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return { shown: sorted.slice(0, NAMED).sort(), rest: new Set(sorted.slice(NAMED)) };
}

/**
 * `{ times, rows }` of a table in each tick (`plans`, `rules`), allowed below and refused on top.
 * Rows are `{ name, kind, values }`, values per second.
 */
export function stacked(ticks, member) {
  const rowsOf = (tick) => Object.values(tick[member]);
  // Shadow rules are few: a colour and a column only where one would have refused.
  const isTried = ticks.some((tick) => rowsOf(tick).some((row) => row.shadow_refused > 0));
  const kinds = isTried ? ["allowed", "refused", "shadow_refused"] : ["allowed", "refused"];
  const { shown, rest } = names(ticks, (tick) =>
    Object.entries(tick[member]).map(([name, row]) => [name, row.allowed + row.refused + (row.shadow_refused ?? 0)]));
  const value = (tick, name, kind) => perSecond(tick[member][name]?.[kind], tick);
  const rows = [];
  for (const kind of kinds) {
    for (const name of shown) rows.push({ name, kind, values: ticks.map((tick) => value(tick, name, kind)) });
    if (rest.size === 0) continue;
    const sum = (tick) => [...rest].reduce((all, name) => all + value(tick, name, kind), 0);
    rows.push({ name: OTHERS, kind, values: ticks.map(sum) });
  }
  return { times: ticks.map((tick) => tick.at_ms / 1_000), rows };
}

/** The same of a table of plain counts (`sources`); `names` says what each is called, in order. */
export function counts(ticks, member, names) {
  const rows = Object.entries(names).map(([kind, name]) => ({
    name,
    kind,
    values: ticks.map((tick) => perSecond(tick[member][kind], tick)),
  }));
  return { times: ticks.map((tick) => tick.at_ms / 1_000), rows };
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
export function recent(ticks, seconds) {
  const last = ticks.slice(-seconds);
  const all = { allowed: 0, refused: 0, ms: 0 };
  for (const tick of last) {
    all.ms += tick.span_ms;
    for (const row of Object.values(tick.plans)) {
      all.allowed += row.allowed;
      all.refused += row.refused;
    }
  }
  const rate = (count) => (all.ms === 0 ? 0 : (count * 1_000) / all.ms);
  return { allowed: rate(all.allowed), refused: rate(all.refused) };
}

/** Moments at which the breaker changed, the newest first: `{ at_ms, to }`. */
export function breakerChanges(ticks) {
  const changes = [];
  for (let index = 1; index < ticks.length; index += 1) {
    const [before, tick] = [ticks[index - 1], ticks[index]];
    for (const [to, count] of Object.entries(tick.transitions)) {
      const times = count - (before.transitions[to] ?? 0);
      if (times > 0) changes.unshift({ at_ms: tick.at_ms, to, times });
    }
  }
  return changes;
}
