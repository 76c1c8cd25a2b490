// Pure functions of the dashboard: `node --test tests/browser/arithmetic.test.mjs`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Bucket, corners } from "../../src/admin/page/bucket.js";
import { KINDS, simulate } from "../../src/admin/page/kinds.js";
import { breakerChanges, byPlan, byRule, cumulative, latencies, OTHERS, perName, shownSpan, Samples } from "../../src/admin/page/series.js";
import { exact, limitText, nextAfterMs, perMs, refillMs } from "../../src/admin/page/tokens.js";
import { queryOf, searchTerm } from "../../src/admin/page/audit.js";
import { requestsOf, summed, total } from "../../src/admin/page/outcomes.js";
import { parser } from "../../src/admin/page/events.js";
import { amount, interval, latency, moment, percent, span, tokenCount } from "../../src/admin/page/format.js";
import { idOf, ordered } from "../../src/admin/page/runs.js";
import { sorted } from "../../src/admin/page/sortable.js";
import { linkOf, parseTimes, textOf } from "../../src/admin/page/times.js";
import { format, frozen, parse } from "../../src/admin/page/view.js";
import { civil, fromCivil, label, setGateway } from "../../src/admin/page/zone.js";
import { sample as fixture, samples as day } from "./fixture.mjs";

const SECOND = 1_000_000;

test("bucket grants its burst at once, then one token per period, and a refusal takes no tokens", () => {
  const bucket = new Bucket({ rate: 2, burst: 3 });
  assert.deepEqual([0, 0, 0, 0].map((at) => bucket.take(at).accepted), [true, true, true, false]);
  assert.equal(bucket.take(0).retryAfter, SECOND / 2);
  assert.equal(bucket.take(SECOND / 2 - 1).accepted, false);
  assert.equal(bucket.take(SECOND / 2).accepted, true);
  assert.equal(bucket.level(60 * SECOND), 3);
});

test("units of requests in flight do not come back with time", () => {
  const rule = { kind: "concurrency", rate: "20 in flight", tokens: 3, burst: 20, window_ms: 0, full_after_ms: 900 };
  assert.equal(exact(rule, 60_000), 3);
  assert.deepEqual([1, 3, 4].map((cost) => nextAfterMs(rule, cost)), [0, 0, 900]);
  assert.equal(limitText(rule), "20 in flight");
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
      const outcomes = simulate({ kind: "token_bucket", rate, burst, cost, pattern, load, seconds: 20 });
      const times = outcomes.map(({ at }) => at);
      assert.deepEqual(times, [...times].sort((a, b) => a - b), pattern);
      const passed = outcomes.filter(({ accepted }) => accepted).length;
      assert.ok(passed * cost <= burst + rate * 20, `${pattern}: ${passed}`);
      assert.ok(outcomes.every(({ level }) => level >= 0 && level <= burst), pattern);
    }
  }
  const waiting = simulate({ kind: "token_bucket", rate: 5, burst: 20, cost: 1, pattern: "retry_after", load: 50, seconds: 20 });
  const passed = waiting.filter(({ accepted }) => accepted).length;
  assert.ok(passed >= 115, `${passed}`);
});

test("client that keeps to the rate is never refused", () => {
  const outcomes = simulate({ kind: "token_bucket", rate: 8, burst: 1, cost: 1, pattern: "steady", load: 8, seconds: 20 });
  assert.equal(outcomes.filter(({ accepted }) => !accepted).length, 0);
});

test("line stays within the bucket and ends at the end of the chart", () => {
  const settings = { rate: 5, burst: 20, cost: 3 };
  const outcomes = simulate({ ...settings, kind: "token_bucket", pattern: "bursts", load: 4, seconds: 20 });
  const line = corners(settings, outcomes, 20 * SECOND);
  assert.ok(line.every(([, level]) => level >= -1e-9 && level <= 20));
  assert.ok(line.every(([time], index) => index === 0 || time >= line[index - 1][0]));
  assert.equal(line.at(-1)[0], 20);
});

test("fixed window passes its limit in each period, and up to twice that across a boundary", () => {
  const settings = { kind: "fixed_window", burst: 10, cost: 2, period: 5, load: 50, seconds: 20 };
  for (const pattern of ["steady", "bursts", "ramp", "random", "retry_after"]) {
    const outcomes = simulate({ ...settings, pattern });
    for (let start = 0; start < 20; start += 5) {
      const passed = outcomes.filter(({ at, accepted }) => accepted && at >= start * SECOND && at < (start + 5) * SECOND);
      assert.ok(passed.length <= 5, `${pattern}: ${passed.length}`);
    }
    const line = KINDS.fixed_window.line(settings, outcomes, 20 * SECOND);
    assert.ok(line.every(([, level]) => level >= 0 && level <= 10), pattern);
    assert.ok(line.every(([time], index) => index === 0 || time >= line[index - 1][0]), pattern);
  }
  const ramp = simulate({ ...settings, pattern: "steady", cost: 1, load: 8 });
  assert.match(KINDS.fixed_window.promise({ ...settings, cost: 1 }, ramp), /No pattern gets more than 10 in a period of 5 s/);
});

test("at most the limit is in flight", () => {
  const settings = { kind: "concurrency", burst: 10, cost: 3, duration: 2, load: 30, seconds: 20 };
  for (const pattern of ["steady", "bursts", "ramp", "random", "retry_after"]) {
    const outcomes = simulate({ ...settings, pattern });
    const inFlight = (time) => outcomes.filter(({ at, accepted, back }) => accepted && at <= time && back > time).length;
    assert.ok(outcomes.every(({ at }) => inFlight(at) <= 3), pattern);
    const line = KINDS.concurrency.line(settings, outcomes, 20 * SECOND);
    assert.ok(line.every(([, level]) => level >= 1 && level <= 10), pattern);
  }
});

test("leaky bucket passes requests evenly, in order, none later than its delay", () => {
  const settings = { kind: "leaky_bucket", rate: 5, delay: 2, load: 20, seconds: 20 };
  for (const pattern of ["steady", "bursts", "ramp", "random"]) {
    const outcomes = simulate({ ...settings, pattern });
    const passed = outcomes.filter(({ accepted }) => accepted);
    assert.ok(passed.every(({ at, back }) => back >= at && back - at <= 2 * SECOND + 1e-3), pattern);
    assert.ok(passed.every(({ back }, index) => index === 0 || back - passed[index - 1].back >= SECOND / 5 - 1e-3), pattern);
    const line = KINDS.leaky_bucket.line(settings, outcomes, 20 * SECOND);
    assert.ok(line.every(([, level]) => level >= 0 && level <= 10), pattern);
  }
});

test("sliding window passes exactly its limit in any window", () => {
  const settings = { kind: "sliding_window", burst: 10, cost: 2, period: 5, load: 50, seconds: 20 };
  for (const pattern of ["steady", "bursts", "ramp", "random", "retry_after"]) {
    const outcomes = simulate({ ...settings, pattern });
    outcomes.forEach(({ at, accepted }, index) => {
      const before = outcomes.slice(0, index).filter((one) => one.accepted && one.at > at - 5 * SECOND);
      assert.equal(accepted, before.length < 5, `${pattern} at ${at}`);
    });
  }
  const steady = simulate({ ...settings, pattern: "steady" });
  assert.match(KINDS.sliding_window.promise(settings, steady), /more than 10 in any 5 s, .* the most here is 10\./);
});

test("request is accepted exactly after retryAfter of a fixed or sliding window", () => {
  for (const [cost, kind] of [[1, "fixed_window"], [3, "fixed_window"], [1, "sliding_window"], [3, "sliding_window"]]) {
    const window = KINDS[kind].make({ burst: 7, cost, period: 5 });
    while (window.take(SECOND).accepted);
    const { retryAfter } = window.take(2 * SECOND);
    assert.equal(window.take(2 * SECOND + retryAfter - 1).accepted, false);
    assert.equal(window.take(2 * SECOND + retryAfter).accepted, true);
  }
});

test("time for the tokens that were missing follows from the rate", () => {
  assert.equal(refillMs("20/m", 5), 15_000);
  assert.equal(refillMs("3/250ms", 1), 84);
});

test("rates are parsed", () => {
  assert.equal(perMs("100/s"), 0.1);
  assert.equal(perMs("5/250ms"), 0.02);
  assert.equal(perMs("600/10m"), 0.001);
  assert.ok(Number.isNaN(perMs("many")));
});

test("tokens and time of the next allowed request follow from full_after_ms", () => {
  const bucket = { burst: 50, window_ms: 5_000, full_after_ms: 4_950 };
  assert.ok(Math.abs(exact(bucket) - 0.5) < 1e-9);
  assert.ok(Math.abs(exact(bucket, 1_000) - 10.5) < 1e-9);
  assert.equal(exact(bucket, 60_000), 50);
  assert.equal(nextAfterMs(bucket), 50);
  assert.equal(nextAfterMs(bucket, 5), 450);
  assert.equal(nextAfterMs({ ...bucket, full_after_ms: 100 }), 0);
  const window = { kind: "sliding_window", tokens: 0, burst: 5, window_ms: 500, full_after_ms: 450, next_after_ms: 70 };
  assert.deepEqual([exact(window), nextAfterMs(window), nextAfterMs(window, 2)], [0, 70, 450]);
  assert.equal(nextAfterMs({ ...window, tokens: 2 }, 2), 0);
});

const sample = (at_ms, plans, transitions = {}) => ({ at_ms, span_ms: 1_000, plans, transitions });

test("rows are stacked: allowed below, refused on top, each name once", () => {
  const samples = [sample(1_000, { free: { allowed: 4, refused: 1 } }), sample(2_000, { pro: { allowed: 2, refused: 0 } })];
  const { times, rows } = byPlan(samples);
  assert.deepEqual(times, [1, 2]);
  assert.deepEqual(rows.map(({ name, kind }) => `${name} ${kind}`), ["free allowed", "pro allowed", "free refused", "pro refused"]);
  assert.deepEqual(cumulative(rows).at(-1), [5, 2]);
});

test("names beyond the first six are added up", () => {
  const plans = Object.fromEntries(Array.from({ length: 9 }, (_, index) => [`p${index}`, { allowed: 10 + index, refused: 0 }]));
  const { rows } = byPlan([sample(1_000, plans)]);
  const allowed = rows.filter(({ kind }) => kind === "allowed");
  assert.deepEqual(allowed.map(({ name }) => name), ["p3", "p4", "p5", "p6", "p7", "p8", OTHERS]);
  assert.equal(allowed.at(-1).values[0], 10 + 11 + 12);
});

test("each request is in one row of each chart, so that all totals agree", () => {
  const now = Date.UTC(2026, 10, 22, 12);
  for (const length of [300_000, 3_600_000, 86_400_000]) {
    const { samples } = day(now - length, now, now);
    const last = (chart) => cumulative(chart.rows).at(-1);
    const [plans, rules] = [last(byPlan(samples)), last(byRule(samples))];
    samples.forEach((one, index) => {
      const expected = (total(requestsOf(one)) * 1_000) / one.span_ms;
      for (const sum of [plans, rules]) assert.ok(Math.abs(sum[index] - expected) < 1e-6, `${sum[index]} ${expected}`);
    });
    const sum = summed(samples);
    for (const member of ["routes", "upstreams"]) {
      assert.equal(perName(samples, member).reduce((all, { requests }) => all + requests, 0), total(sum), member);
    }
  }
});

test("401 counts as unauthorized, not as allowed, and shadow refusals are lines outside of the stack", () => {
  const counts = { allowed: 4, refused: 0, unavailable: 0, unauthorized: 3, rejected: 0 };
  const one = {
    at_ms: 1_000, span_ms: 1_000, requests: counts, plans: { "": { ...counts, allowed: 0 }, free: { allowed: 4 } },
    rules: { a: { allowed: 4, refused: 0, shadow_refused: 2 }, b: { allowed: 4, refused: 0 } },
  };
  const { rows, lines } = byRule([one]);
  assert.deepEqual(rows.map(({ kind, values }) => [kind, values[0]]), [["allowed", 4], ["unauthorized", 3]]);
  assert.deepEqual(lines.map(({ name, values }) => [name, values[0]]), [["a", 2]]);
});

test("members that a sample does not have count as 0", () => {
  const bare = { at_ms: 1_000, span_ms: 1_000 };
  assert.equal(total(requestsOf(bare)), 0);
  assert.deepEqual(byPlan([bare]).rows.map(({ values }) => values), []);
  assert.deepEqual(perName([bare], "routes"), []);
  assert.deepEqual(latencies([bare], (one) => one.latency).rows.map(({ values }) => values), [[null], [null]]);
});

test("rates are per second for every span of a sample", () => {
  const slow = { at_ms: 1, span_ms: 2_000, plans: { free: { allowed: 8, refused: 2 } }, transitions: {} };
  const { allowed, refused, ms } = summed([slow]);
  assert.deepEqual([allowed, refused, ms], [8, 2, 2_000]);
  assert.equal(byPlan([slow]).rows[0].values[0], 4);
});

test("row of a name has its counts, the median of the p50 and the highest p99", () => {
  const one = (p50_ms, p99_ms, requests) => ({ routes: { search: { requests, errors: 1, p50_ms, p99_ms } } });
  assert.deepEqual(perName([one(5, 50, 10), one(7, 20, 10), one(900, 30, 1), one(null, null, 0)], "routes"),
    [{ name: "search", requests: 21, errors: 4, failures: 0, p50_ms: 7, p99_ms: 50 }]);
});

test("table is sorted in both directions, equal rows by name", () => {
  const rows = [{ name: "b", n: 1 }, { name: "a", n: 1 }, { name: "c", n: 2 }];
  const names = (direction) => sorted(rows, { value: ({ n }) => n }, direction).map(({ name }) => name).join("");
  assert.equal(names("descending"), "cab");
  assert.equal(names("ascending"), "abc");
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

test("run is identified by what does not change while it continues", () => {
  const run = { first: "a", last: "b", count: 1, key: "acme", ip: null, rule: "per-key" };
  assert.equal(idOf(run), idOf({ ...run, last: "c", count: 2, kind: "limit" }));
  assert.notEqual(idOf(run), idOf({ ...run, kind: "shadow" }));
  assert.notEqual(idOf(run), idOf({ ...run, gateway: "b" }));
});

test("filter becomes a query, whose end is the last millisecond of the range", () => {
  const at = "2026-11-22T10:03:00Z/2026-11-22T10:04:00Z";
  const query = new URLSearchParams(queryOf({ who: "acme", rule: "per-key", kind: "limit", at, all: false }, ["acme"], 12, 0));
  assert.deepEqual(Object.fromEntries(query), {
    key: "acme", rule: "per-key", kind: "limit", since: "2026-11-22T10:03:00.000Z", until: "2026-11-22T10:03:59.999Z", limit: "12",
  });
  assert.equal(queryOf({ who: "", rule: "", kind: "all", at: "", all: true }, [], 12, 0), "all=true&limit=12");
  const ancient = new URLSearchParams(queryOf({ who: "", rule: "", kind: "all", at: "999999d", all: false }, [], 12, 0));
  assert.equal(ancient.get("since"), "1970-01-01T00:00:00.000Z", "the gateway has no times before");
  const refused = queryOf({ who: "", rule: "", kind: "", at: "", all: false }, [], 12, 0);
  assert.equal(new URLSearchParams(refused).get("kind"), "limit,unavailable,unauthorized");
});

test("times are read as people write them, in the shown zone", () => {
  const now = Date.UTC(2026, 10, 22, 12, 30);
  const read = (text, zone = "Europe/Berlin") => {
    const range = parseTimes(text, now, zone);
    return range && [range.from, range.to].map((ms) => (ms === null ? "now" : new Date(ms).toISOString().slice(5, 19))).join(" ");
  };
  for (const [text, expected] of Object.entries({
    "10:03": "11-22T09:03:00 11-22T09:04:00",
    "10:03:30": "11-22T09:03:30 11-22T09:03:31",
    "14:00": "11-21T13:00:00 11-21T13:01:00",
    "yesterday 10:03": "11-21T09:03:00 11-21T09:04:00",
    "10:00-10:15": "11-22T09:00:00 11-22T09:16:00",
    "10:00 – 10:15": "11-22T09:00:00 11-22T09:16:00",
    "10:00 to 10:15": "11-22T09:00:00 11-22T09:16:00",
    "23:50-00:10": "11-21T22:50:00 11-21T23:11:00",
    "15m": "11-22T12:15:00 now",
    "2026-11-20 10:03": "11-20T09:03:00 11-20T09:04:00",
    "2026-11-20": "11-19T23:00:00 11-20T23:00:00",
    "10:03Z": "11-22T10:03:00 11-22T10:04:00",
    "10:03+05:30": "11-22T04:33:00 11-22T04:34:00",
    "2026-11-20T10:00:00-05:00": "11-20T15:00:00 11-20T15:00:01",
    "2026-11-20T10:00:00Z/2026-11-20T11:00:00Z": "11-20T10:00:00 11-20T11:00:00",
    "2026-11-20 23:00 – 2026-11-21 01:00": "11-20T22:00:00 11-21T00:01:00",
  })) assert.equal(read(text), expected, text);
  for (const text of ["", "25:00", "10:60", "tomorrow", "10:03 acme", "2026-13-01", "2026-02-30", "2026-11-20 11:00 – 2026-11-20 10:00", "<b>", "9".repeat(500)]) {
    assert.equal(read(text), null, text);
  }
});

test("range that was read is shown as a text with the same meaning, and as a link", () => {
  const now = Date.UTC(2026, 10, 22, 12, 30);
  for (const text of ["10:03", "10:03:30", "10:00-10:15", "23:50-00:10", "2026-11-20"]) {
    const range = parseTimes(text, now);
    assert.deepEqual(parseTimes(textOf(range), now), range, text);
    assert.deepEqual(parseTimes(linkOf(range), now, "Asia/Kolkata"), range, text);
  }
});

test("clock of a zone is read back, also when clocks change", () => {
  for (const zone of ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "+05:45"]) {
    for (let ms = Date.UTC(2026, 2, 28); ms < Date.UTC(2026, 2, 30); ms += 1_800_000) {
      assert.deepEqual(civil(fromCivil(civil(ms, zone), zone), zone), civil(ms, zone), `${zone} ${ms}`);
    }
  }
  // 02:30 does not exist on this day.
  assert.equal(new Date(fromCivil([2026, 3, 29, 2, 30], "Europe/Berlin")).toISOString(), "2026-03-29T01:30:00.000Z");
});

test("zone of the gateway that the browser does not know is shown by its offset", () => {
  assert.equal(setGateway("America/New_York", -18_000), "America/New_York");
  assert.equal(label("gateway"), "Gateway: America/New_York");
  assert.equal(setGateway("Nowhere/Land", -12_600), "-03:30");
  assert.equal(label("gateway"), "Gateway: UTC-03:30");
  assert.equal(label("utc"), "UTC");
});

test("view survives the way through a link", () => {
  const view = {
    section: "refusals", range: { from: Date.UTC(2026, 10, 22, 10), to: Date.UTC(2026, 10, 22, 10, 15) }, zone: "utc", latency: "route:a&b",
    who: "acme", rule: "per-key", kind: "shadow", at: "2026-11-22T10:03:00Z/2026-11-22T10:04:00Z", all: true,
    client: { kind: "ip", id: "2001:db8::/64", route: "search", ip: "" },
  };
  assert.deepEqual(parse(format(view)), view);
  assert.equal(format(parse("")), "#overview");
  assert.equal(format(parse("#health?range=1h")), "#health?range=1h");
});

test("link to a moving range has its ends, one to the live range has not", () => {
  const now = Date.UTC(2026, 10, 22, 12);
  assert.equal(format(frozen(parse("#traffic?range=1h"), now)), "#traffic?range=2026-11-22T11:00:00Z/2026-11-22T12:00:00Z");
  assert.equal(format(frozen(parse("#traffic"), now)), "#traffic");
});

test("hostile fragments give the default view or text of a bounded length", () => {
  const safe = format(parse(""));
  for (const hostile of [
    "#<img src=x onerror=alert(1)>", "#__proto__", "#constructor?range=__proto__", "#overview?range=constructor", "#overview?range=5s", "#%", "#?????", "#overview?range=/",
    "#overview?range=2026-11-22T10:00:00Z/2026-11-22T10:00:01Z", "#overview?range=2020-01-01T00:00:00Z/2026-01-01T00:00:00Z", "#overview?range=NaN/NaN", "#overview?zone=__proto__&kind=x",
    "#overview?key=%00%1f", "#overview?key=%e0%a4%a",
  ]) {
    const view = parse(hostile);
    if (view.client) assert.equal(view.client.id.length <= 200, true, hostile);
    else assert.equal(format(view), safe, hostile);
  }
  assert.equal(parse(`#refusals?who=${"x".repeat(100_000)}`).who.length, 200);
  assert.equal(parse("#refusals?who=a%E2%80%AEb%0d%0a").who, "ab");
});

test("interval has dates where it is not of today", () => {
  const now = new Date(2026, 10, 22, 12).getTime();
  assert.equal(interval(now - 300_000, now, now), "11:55:00 – 12:00:00");
  assert.equal(interval(now - 86_400_000, now, now), "21 Nov, 12:00:00 – 22 Nov, 12:00:00");
});

test("fixture keeps its promises to the page", () => {
  const one = fixture(Date.UTC(2026, 10, 22), 60_000);
  assert.equal(Object.values(one.statuses).reduce((sum, count) => sum + count, 0), total(one.requests));
});

test("time of today has no date", () => {
  const noon = new Date(2026, 10, 21, 12, 0, 3).getTime();
  assert.equal(moment(noon, noon + 3_600_000), "12:00:03");
  assert.equal(moment(noon, noon + 24 * 3_600_000), "21 Nov, 12:00:03");
});

test("numbers are abbreviated", () => {
  assert.deepEqual([0, 4.25, 42.4, 4_200, 1_234_567].map(amount), ["0", "4.3", "42", "4,200", "1.2M"]);
  assert.deepEqual([percent(0, 0), percent(1, 3), percent(1, 10_000)], ["0 %", "33.3 %", "< 0.1 %"]);
  assert.deepEqual([null, 0.42, 12.4, 1_240].map(latency), ["–", "0.4 ms", "12 ms", "1.2 s"]);
  assert.deepEqual([87, 1_240, 90_000, 7_200_000].map(span), ["87 ms", "1.2 s", "1.5 min", "2 h"]);
});

test("numbers of tokens have up to three decimals", () => {
  assert.equal(tokenCount(1), "1 token");
  assert.equal(tokenCount(0.5), "0.5 tokens");
  assert.equal(tokenCount(2.1 - 2), "0.1 tokens");
  assert.equal(tokenCount(5_000), "5,000 tokens");
});
