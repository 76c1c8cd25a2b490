// Pure functions of the dashboard: `node --test tests/browser/arithmetic.test.mjs`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Bucket, corners, simulate } from "../../src/admin/page/bucket.js";
import { breakerChanges, cumulative, OTHERS, recent, shownSpan, stacked, Samples } from "../../src/admin/page/series.js";
import { exact, nextAfterMs, perMs } from "../../src/admin/page/tokens.js";
import { searchTerm, ordered } from "../../src/admin/page/refusals.js";
import { parser } from "../../src/admin/page/events.js";
import { amount, moment, percent, span } from "../../src/admin/page/format.js";

const SECOND = 1_000_000;

test("bucket grants its burst at once, then one token per period, and a refusal takes no tokens", () => {
  const bucket = new Bucket({ rate: 2, burst: 3 });
  assert.deepEqual([0, 0, 0, 0].map((at) => bucket.take(at).accepted), [true, true, true, false]);
  assert.equal(bucket.take(0).retryAfter, SECOND / 2);
  assert.equal(bucket.take(SECOND / 2 - 1).accepted, false);
  assert.equal(bucket.take(SECOND / 2).accepted, true);
  assert.equal(bucket.level(60 * SECOND), 3);
});

test("request is accepted exactly after retryAfter", () => {
  for (const rate of [1, 3, 7, 50]) {
    for (const cost of [1, 2, 5]) {
      const bucket = new Bucket({ rate, burst: 5, cost });
      while (bucket.take(0).accepted);
      const { retryAfter } = bucket.take(0);
      assert.equal(bucket.take(retryAfter - 1).accepted, false, `${rate} ${cost}`);
      assert.equal(bucket.take(retryAfter).accepted, true, `${rate} ${cost}`);
    }
  }
});

test("no pattern gets more than burst + rate · t, and waiting for retryAfter gets nearly that", () => {
  for (const pattern of ["steady", "bursts", "ramp", "random", "retry_after"]) {
    for (const [rate, burst, cost, load] of [[5, 20, 1, 8], [1, 1, 1, 50], [50, 100, 10, 50], [7, 3, 2, 9]]) {
      const outcomes = simulate({ rate, burst, cost, pattern, load, seconds: 20 });
      const times = outcomes.map(({ at }) => at);
      assert.deepEqual(times, [...times].sort((a, b) => a - b), pattern);
      const passed = outcomes.filter(({ accepted }) => accepted).length;
      assert.ok(passed * cost <= burst + rate * 20, `${pattern}: ${passed}`);
      assert.ok(outcomes.every(({ level }) => level >= 0 && level <= burst), pattern);
    }
  }
  const waiting = simulate({ rate: 5, burst: 20, cost: 1, pattern: "retry_after", load: 50, seconds: 20 });
  const passed = waiting.filter(({ accepted }) => accepted).length;
  assert.ok(passed >= 115, `${passed}`);
});

test("client that keeps to the rate is never refused", () => {
  const outcomes = simulate({ rate: 8, burst: 1, cost: 1, pattern: "steady", load: 8, seconds: 20 });
  assert.equal(outcomes.filter(({ accepted }) => !accepted).length, 0);
});

test("line stays within the bucket and ends at the end of the chart", () => {
  const settings = { rate: 5, burst: 20, cost: 3 };
  const outcomes = simulate({ ...settings, pattern: "bursts", load: 4, seconds: 20 });
  const line = corners(settings, outcomes, 20 * SECOND);
  assert.ok(line.every(([, level]) => level >= -1e-9 && level <= 20));
  assert.ok(line.every(([time], index) => index === 0 || time >= line[index - 1][0]));
  assert.equal(line.at(-1)[0], 20);
});

test("rates are parsed", () => {
  assert.equal(perMs("100/s"), 0.1);
  assert.equal(perMs("5/250ms"), 0.02);
  assert.equal(perMs("600/10m"), 0.001);
  assert.ok(Number.isNaN(perMs("many")));
});

test("tokens and time of the next allowed request follow from full_after_ms", () => {
  const bucket = { rate: "10/s", burst: 50, full_after_ms: 4_950 };
  assert.ok(Math.abs(exact(bucket) - 0.5) < 1e-9);
  assert.ok(Math.abs(exact(bucket, 1_000) - 10.5) < 1e-9);
  assert.equal(exact(bucket, 60_000), 50);
  assert.equal(nextAfterMs(bucket), 50);
  assert.equal(nextAfterMs(bucket, 5), 450);
  assert.equal(nextAfterMs({ ...bucket, full_after_ms: 100 }), 0);
});

const sample = (at_ms, plans, transitions = {}) => ({ at_ms, span_ms: 1_000, plans, transitions });

test("rows are stacked: allowed below, refused on top, each name once", () => {
  const samples = [sample(1_000, { free: { allowed: 4, refused: 1 } }), sample(2_000, { pro: { allowed: 2, refused: 0 } })];
  const { times, rows } = stacked(samples, "plans");
  assert.deepEqual(times, [1, 2]);
  assert.deepEqual(rows.map(({ name, kind }) => `${name} ${kind}`), ["free allowed", "pro allowed", "free refused", "pro refused"]);
  assert.deepEqual(cumulative(rows).at(-1), [5, 2]);
});

test("names beyond the first six are added up", () => {
  const plans = Object.fromEntries(Array.from({ length: 9 }, (_, index) => [`p${index}`, { allowed: 10 + index, refused: 0 }]));
  const { rows } = stacked([sample(1_000, plans)], "plans");
  const allowed = rows.filter(({ kind }) => kind === "allowed");
  assert.deepEqual(allowed.map(({ name }) => name), ["p3", "p4", "p5", "p6", "p7", "p8", OTHERS]);
  assert.equal(allowed.at(-1).values[0], 10 + 11 + 12);
});

test("rates are per second for every span of a sample", () => {
  const slow = { at_ms: 1, span_ms: 2_000, plans: { free: { allowed: 8, refused: 2 } }, transitions: {} };
  assert.deepEqual(recent([slow], 5), { allowed: 4, refused: 1 });
  assert.deepEqual(recent([], 5), { allowed: 0, refused: 0 });
});

test("at most 300 samples are kept, and a chart spans at least a minute", () => {
  const samples = new Samples();
  for (let second = 0; second < 1_000; second += 1) samples.push(sample(second * 1_000, {}));
  assert.equal(samples.list.length, 300);
  assert.deepEqual(shownSpan(0, 10), [-50, 10]);
  assert.deepEqual(shownSpan(0, 1_000), [700, 1_000]);
});

test("breaker transitions are read from the counts", () => {
  const samples = [sample(1, {}), sample(2, {}, { open: 1 }), sample(3, {}, { open: 1, half_open: 1 })];
  assert.deepEqual(breakerChanges(samples).map(({ to }) => to), ["half_open", "open"]);
});

test("events are parsed for every split of the stream", () => {
  const text = 'event: history\ndata: [1]\n\nevent: sample\ndata: {"a":2}\n\n';
  for (let size = 1; size < text.length; size += 1) {
    const events = [];
    const take = parser((event, data) => events.push([event, data]));
    for (let at = 0; at < text.length; at += size) take(text.slice(at, at + size));
    assert.deepEqual(events, [["history", [1]], ["sample", { a: 2 }]]);
  }
});

test("search text is an existing key id, or else an address if it looks like one", () => {
  const keys = ["acme", "10.0.0.1"];
  const table = {
    "": {}, acme: { key: "acme" }, acm: { key: "acm" }, "10.0.0.1": { key: "10.0.0.1" }, "10.0.0.2": { ip: "10.0.0.2" },
    "2001:db8::": { ip: "2001:db8::" }, "h:84aba8a80f5a07ab": { ip: "h:84aba8a80f5a07ab" }, "1.2.3": { key: "1.2.3" },
  };
  for (const [text, expected] of Object.entries(table)) assert.deepEqual(searchTerm(text, keys), expected, text);
});

test("open refusal runs keep their rows", () => {
  const run = (name, open, first, last) => ({ name, open, first: `2026-11-21T16:34:${first}Z`, last: `2026-11-21T16:34:${last}Z` });
  const names = (runs) => ordered(runs).map(({ name }) => name).join(" ");
  const over = [run("old", false, "01.5", "09.5"), run("older", false, "02.5", "08.5")];
  assert.equal(names([run("a", true, "10.1", "20.1"), run("b", true, "11.1", "20.2"), ...over]), "b a old older");
  assert.equal(names([...over, run("b", true, "11.1", "21.1"), run("a", true, "10.1", "21.9")]), "b a old older");
});

test("time of today has no date", () => {
  const noon = new Date(2026, 10, 21, 12, 0, 3).getTime();
  assert.equal(moment(noon, noon + 3_600_000), "12:00:03");
  assert.equal(moment(noon, noon + 24 * 3_600_000), "21 Nov, 12:00:03");
});

test("numbers are abbreviated", () => {
  assert.deepEqual([0, 4.25, 42.4, 4_200, 1_234_567].map(amount), ["0", "4.3", "42", "4,200", "1.2M"]);
  assert.deepEqual([percent(0, 0), percent(1, 3), percent(1, 10_000)], ["0 %", "33.3 %", "< 0.1 %"]);
  assert.deepEqual([87, 1_240, 90_000, 7_200_000].map(span), ["87 ms", "1.2 s", "1.5 min", "2 h"]);
});
