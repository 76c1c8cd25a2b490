// The views of the dashboard: ranges, zones, links, long names, and the way to an answer for a client.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { CROWD, eventually, load, overflowing, pause, renamed, secret, send, startBrowser, startGateway } from "./support.mjs";
import { long, serveSamples } from "./fixture.mjs";

const PHONE = { viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true };

let gateway;
let browser;
let quiet;

before(async () => {
  gateway = await startGateway({ more: "[audit]\nstream = true\n" });
  quiet = load(gateway.gateway, CROWD);
  browser = await startBrowser();
});

after(async () => {
  quiet?.();
  await browser?.stop();
  await gateway?.stop();
});

const text = (page, selector) => page.textContent(selector);
const fragment = (page) => page.evaluate(() => window.location.hash);
const note = (page) => text(page, "#range-note");
const fixed = (page) => page.inputValue("#range-at");

/** Opens the page with a day of samples. */
const openDay = (part = "", more = {}) => browser.open(gateway.admin, { fragment: part, prepare: serveSamples, ...more });

/** The length of the shown range in seconds, from the fragment. */
async function lengthOf(page) {
  const [, from, to] = /range=([^/]+)\/([^&]+)/.exec(await fragment(page)) ?? [];
  return (Date.parse(to) - Date.parse(from)) / 1_000;
}

test("range is chosen up to 24 hours, and Back returns to the one before", async () => {
  const { page, wrong, close } = await openDay();
  await page.waitForSelector("#by-plan canvas");
  for (const [range, words] of [["15m", "in 15 min"], ["1h", "in 1 h"], ["6h", "in 6 h"], ["24h", "in 24 h"]]) {
    await page.selectOption("#range-select", range);
    assert.equal(await fragment(page), `#overview?range=${range}`);
    await eventually(`requests ${words}`, async () => (await text(page, "#tiles")).includes(words));
  }
  await page.goBack();
  await eventually("six hours", async () => (await text(page, "#tiles")).includes("in 6 h"));
  assert.equal(await page.inputValue("#range-select"), "6h");
  await page.goForward();
  await eventually("a day", async () => (await text(page, "#tiles")).includes("in 24 h"));
  await page.selectOption("#range-select", "5m");
  await eventually("live", async () => (await text(page, "#tiles")).includes("in flight"));
  assert.deepEqual(wrong, []);
  await close();
});

test("dragging over a chart zooms in, and so do buttons by keyboard", async () => {
  const { page, wrong, close } = await openDay("#overview?range=1h");
  const box = await (await page.waitForSelector("#by-plan .u-over")).boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.25, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.75, y, { steps: 5 });
  await page.mouse.up();
  const half = await lengthOf(page);
  assert.ok(Math.abs(half - 1_800) < 30, `${half}`);
  assert.equal(await page.inputValue("#range-select"), "fixed");
  assert.match(await fixed(page), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d – (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d$/);
  await page.focus("#range-in");
  await page.keyboard.press("Enter");
  assert.ok(Math.abs((await lengthOf(page)) - half / 2) < 3);
  const before = await fragment(page);
  await page.focus("#range-earlier");
  await page.keyboard.press("Space");
  assert.notEqual(await fragment(page), before);
  await page.focus("#range-later");
  await page.keyboard.press("Enter");
  assert.equal(await fragment(page), before);
  for (let count = 0; count < 20; count += 1) await page.click("#range-out");
  assert.equal(await lengthOf(page), 86_400);
  for (let count = 0; count < 20; count += 1) await page.click("#range-in");
  assert.equal(await lengthOf(page), 10);
  assert.deepEqual(wrong, []);
  await close();
});

test("time that is typed becomes the range, and one that is none is refused", async () => {
  const { page, wrong, close } = await openDay("#overview?zone=utc");
  await page.waitForSelector("#by-plan canvas");
  await page.fill("#range-at", "10:00-10:15");
  await page.press("#range-at", "Enter");
  assert.equal(await lengthOf(page), 960);
  assert.match(await note(page), /10:00:00 – .*10:16:00 UTC$/);
  const before = await fragment(page);
  for (const bad of ["tea time", "5s", "2020-01-01 – 2021-01-01"]) {
    await page.fill("#range-at", bad);
    await page.press("#range-at", "Enter");
    assert.equal(await page.evaluate(() => document.getElementById("range-at").validity.valid), false, bad);
    assert.equal(await fragment(page), before);
  }
  assert.deepEqual(wrong, []);
  await close();
});

test("all times are in the chosen zone, which is named", async () => {
  const { page, wrong, close } = await openDay("#overview?range=2026-11-22T10:00:00Z/2026-11-22T10:15:00Z", { timezoneId: "Europe/Berlin" });
  const legend = () => text(page, "#by-plan-legend thead th");
  await eventually("the browser's", async () => /11:00:00 – 11:15:00 UTC\+01:00$/.test(await note(page)));
  const options = async () => page.locator("#zone option").allTextContents();
  await eventually("the gateway's zone", async () => (await options()).join() === "Browser: Europe/Berlin,UTC,Gateway: America/New_York");
  await page.selectOption("#zone", "utc");
  assert.match(await note(page), /10:00:00 – 10:15:00 UTC$/);
  assert.match(await fixed(page), /10:00:00 – 10:14:59/);
  await page.selectOption("#zone", "gateway");
  assert.match(await note(page), /05:00:00 – 05:15:00 UTC-05:00$/);
  assert.match(await fragment(page), /zone=gateway/);
  await page.selectOption("#range-select", "1h");
  const hour = () => Number(new Intl.DateTimeFormat("en-GB", { timeZone: "America/New_York", hour: "2-digit", hourCycle: "h23" }).format(Date.now() - 1_000));
  await eventually("its clock at the chart", async () => Math.abs(Number((await legend()).slice(0, 2)) - hour()) % 23 <= 1);
  assert.deepEqual(wrong, []);
  await close();
});

test("link shows the same view, with fixed times", async () => {
  const { page, wrong, close } = await openDay("", { permissions: ["clipboard-read", "clipboard-write"] });
  await page.waitForSelector("#by-plan canvas");
  await page.selectOption("#range-select", "1h");
  await page.selectOption("#zone", "utc");
  await page.fill("#refusals-form [name=client]", "initech");
  await page.selectOption("#refusals-form [name=kind]", "limit");
  await page.fill("#client-form [name=id]", "acme");
  await page.click("#client-form button[type=submit]");
  await page.click('nav a[href="#refusals"]');
  await eventually("the filter", async () => /#refusals\?.*who=initech/.test(await fragment(page)));
  await page.click("#copy-link");
  await eventually("an acknowledgement", async () => (await text(page, "#copy-link")) === "Copied");
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(link, /#refusals\?range=20\d\d-\d\d-\d\dT[\d:.]+Z\/20\d\d-\d\d-\d\dT[\d:.]+Z&zone=utc&who=initech&kind=limit&key=acme$/);
  const other = await openDay(new URL(link).hash);
  await other.page.waitForSelector("#client-cards .bucket-card");
  assert.equal(await other.page.inputValue("#refusals-form [name=client]"), "initech");
  assert.equal(await other.page.inputValue("#refusals-form [name=kind]"), "limit");
  assert.equal(await other.page.inputValue("#zone"), "utc");
  assert.equal(await other.page.inputValue("#range-select"), "fixed");
  assert.equal(await other.page.locator('nav a[aria-current="true"]').textContent(), "Refusals");
  await eventually("its section in sight", async () => other.page.evaluate(() => Math.abs(document.getElementById("refusals").getBoundingClientRect().top) < 200));
  assert.deepEqual([...wrong, ...other.wrong], []);
  await other.close();
  await close();
});

test("range without samples says so, and an address that is edited is followed", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin, { fragment: "#overview?range=2026-11-01T10:00:00Z/2026-11-01T11:00:00Z", reducedMotion: "reduce" });
  await eventually("no samples", async () => /Requests\/s–no samples/.test(await text(page, "#tiles")));
  await eventually("none in the charts", async () => (await text(page, "#by-plan-legend")) === "No samples in this range.");
  await page.evaluate(() => { window.location.hash = "#health?range=5m"; });
  await eventually("the section", async () => page.evaluate(() => Math.abs(document.getElementById("health").getBoundingClientRect().top) < 200));
  await eventually("live", async () => (await text(page, "#tiles")).includes("in flight"));
  assert.match(await fragment(page), /^#health/);
  await page.goBack();
  await eventually("no samples again", async () => /no samples/.test(await text(page, "#tiles")));
  assert.match(await fragment(page), /^#overview\?range=2026/);
  assert.deepEqual(wrong, []);
  await close();
});

test("hostile link is only text", async () => {
  const attack = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>';
  const encoded = encodeURIComponent(attack);
  const { page, wrong, close } = await openDay(`#${encoded}?range=${encoded}&zone=${encoded}&latency=route:${encoded}&who=${encoded}&rule=${encoded}&kind=${encoded}&at=${encoded}&key=${encoded}&route=${encoded}&from=${encoded}`);
  await eventually("the client's error", async () => /^(?!Loading).+/.test(await text(page, "#client-who")));
  await eventually("the filter's error", async () => (await text(page, "#refusal-list")) !== "Loading");
  await page.waitForSelector("#by-plan canvas");
  assert.equal(await page.evaluate(() => window.attacked), undefined);
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.equal(await page.inputValue("#refusals-form [name=client]"), attack);
  // The gateway answers 400 or 404 to names that do not exist.
  assert.deepEqual(wrong.filter((line) => !/status of 40[04]/.test(line)), []);
  await close();
});

test("labels of an axis are complete", async () => {
  const record = () => {
    window.labels = [];
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function fillText(text, x, ...rest) {
      const width = this.measureText(text).width;
      const left = this.getTransform().e + x - { center: width / 2, right: width, end: width }[this.textAlign] || 0;
      window.labels.push({ text, left, right: left + width, of: this.canvas.width });
      return draw.call(this, text, x, ...rest);
    };
  };
  for (const options of [{}, PHONE]) {
    const { page, close } = await openDay("", { ...options, prepare: async (page) => { await serveSamples(page); await page.addInitScript(record); } });
    await page.fill("#client-form [name=id]", "acme");
    await page.click("#client-form button[type=submit]");
    await page.waitForSelector(".bucket-card canvas");
    for (const range of ["5m", "15m", "1h", "6h", "24h"]) {
      await page.selectOption("#range-select", range);
      await pause(500);
    }
    const labels = await page.evaluate(() => window.labels);
    assert.ok(labels.length > 50, `${labels.length}`);
    assert.deepEqual(labels.filter(({ left, right, of }) => left < 0 || right > of), []);
    await close();
  }
});

test("traffic is shown by route and upstream, sorted as the reader chooses", async () => {
  const { page, wrong, close } = await openDay("#traffic?range=6h");
  const rows = (kind) => page.locator(`#by-${kind} tbody tr`);
  await eventually("routes", async () => (await rows("route").count()) === 2);
  const names = () => page.locator("#by-route tbody th").allTextContents();
  assert.deepEqual(await names(), ["search", "rest"]);
  assert.equal(await page.locator('#by-route th[aria-sort="descending"]').textContent(), "Req/s");
  await page.focus('#by-route button[data-sort="requests"]');
  await page.keyboard.press("Enter");
  assert.deepEqual(await names(), ["rest", "search"]);
  await page.click('#by-route button[data-sort="name"]');
  assert.deepEqual(await names(), ["rest", "search"]);
  assert.equal(await page.locator('#by-route th[aria-sort="ascending"]').textContent(), "Route");
  await page.click('#by-upstream button[data-latency="upstream:api"]');
  assert.match(await text(page, "#latency-of"), /Of the upstream api, to the first byte/);
  assert.equal(await page.getAttribute('#by-upstream button[data-latency="upstream:api"]', "aria-pressed"), "true");
  assert.match(await fragment(page), /latency=upstream:api/);
  await page.goBack();
  await eventually("all requests", async () => (await text(page, "#latency-of")) === "Of all requests.");
  assert.match(await text(page, "#statuses-legend"), /5xx/);
  assert.deepEqual(wrong, []);
  await close();
});

test("tile leads to the clients of its requests, in the shown range", async () => {
  const { page, wrong, close } = await openDay("#overview?range=1h");
  await page.waitForSelector('#tiles button[data-runs="unauthorized"]');
  await page.click('#tiles button[data-runs="unauthorized"]');
  assert.equal(await fragment(page), "#refusals?range=1h&kind=unauthorized&at=1h");
  assert.equal(await page.inputValue("#refusals-form [name=kind]"), "unauthorized");
  assert.deepEqual(wrong, []);
  await close();
});

test("totals agree between the tile, the plans, the rules, the statuses and the routes", async () => {
  const { page, wrong, close } = await openDay("#overview?range=24h");
  await eventually("a day", async () => (await text(page, "#tiles")).includes("in 24 h"));
  const cells = (id) => page.locator(`#${id}-legend tfoot tr:first-child td`).allTextContents();
  const sum = (texts) => texts.reduce((all, one) => all + Number(one.replaceAll(",", "")), 0);
  const [plans, rules, statuses] = [sum(await cells("by-plan")), sum(await cells("by-rule")), sum(await cells("statuses"))];
  // Values are shown with one digit or none after the point.
  assert.ok(Math.abs(plans - rules) < 2 && Math.abs(rules - statuses) < 2, `${plans} ${rules} ${statuses}`);
  const tile = Number(await page.locator(".tile", { hasText: "Requests/s" }).locator("strong").textContent());
  const rates = await page.locator("#by-route tbody td:nth-of-type(1)").allTextContents();
  assert.ok(Math.abs(tile - sum(rates)) <= 1, `${tile} ${rates}`);
  assert.deepEqual(wrong, []);
  await close();
});

for (const [name, options] of [["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }]]) {
  test(`names of 64 characters fit into 375 pixels, in every section: ${name}`, async () => {
    const change = (text) => renamed(text, long).replace("What a plan buys.", "<b>🦀\u202e\\\"".concat("m".repeat(100)));
    const other = await startGateway({ change });
    const stop = load(other.gateway, CROWD.map((client) => ({ ...client, perSecond: client.perSecond * 2 })));
    const names = {
      plans: ["free", "pro", "enterprise"].map(long), rules: ["per-key", "per-ip"].map(long), routes: ["search", "rest"].map(long), upstreams: ["api"].map(long),
    };
    try {
      const { page, wrong, close } = await browser.open(other.admin, { ...PHONE, ...options, prepare: (page) => serveSamples(page, names) });
      await page.fill("#client-form [name=id]", long("acme"));
      await page.click("#client-form button[type=submit]");
      await page.waitForSelector("#client-refusals table");
      await page.click("#client-refusals button.more");
      await page.waitForSelector("#client-refusals tr.detail");
      await page.click("#refusal-list button.more");
      await page.waitForSelector("#refusal-list tr.detail");
      await page.fill("#explain-form [name=key]", secret("acme"));
      await page.fill("#explain-form [name=path]", "/api/search");
      await page.click("#explain-form button[type=submit]");
      await page.waitForSelector("#explanation table");
      await page.waitForSelector("#by-route table");
      await page.waitForSelector("#most-refused table");
      other.save(other.text.replace('rate = "40/s"', 'rate = "50/s"'));
      await page.click("#reload");
      await page.waitForSelector("#reloads .diff");
      await page.selectOption("#refusals-rule", long("per-key"));
      await page.click(`#by-route button[data-latency="route:${long("search")}"]`);
      await page.waitForSelector("#rules table");
      assert.deepEqual(await overflowing(page), []);
      // "by" is one line beside a select that fills its row.
      assert.ok(await page.evaluate(() => [...document.querySelectorAll("#refusals-form label")].every((label) => label.offsetHeight < 48)));
      assert.deepEqual(wrong, []);
      await close();
    } finally {
      stop();
      await other.stop();
    }
  });
}

test("three clicks answer why a key was refused at a time", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  // A person reads the time from a ticket; here it is that of a refusal of the key.
  for (let count = 0; count < 40; count += 1) await send(gateway.gateway, "/api/search", { "x-api-key": secret("acme"), "x-forwarded-for": "203.0.113.7" });
  const at = new Date(Date.now() - 500).toTimeString().slice(0, 5);
  await page.click('nav a[href="#refusals"]');
  await page.fill("#refusals-form [name=client]", "acme");
  await page.fill("#refusals-form [name=at]", at);
  await page.keyboard.press("Enter");
  await eventually("the runs of that minute", async () => new RegExp(`, ${at}:00 – `).test(await text(page, "#refusals-note"))
    && /key acme/.test(await text(page, "#refusal-list tbody")));
  await page.locator("#refusal-list button.more").first().click();
  const detail = await eventually("the run", () => text(page, "#refusal-list tr.detail"));
  for (const part of ["First", "Last", "Requests", "Rule", "Tokens left"]) assert.ok(detail.includes(part), `${part} in ${detail}`);
  await page.click('#refusal-list tr.detail button[data-kind="key"]');
  await page.waitForSelector('[data-rule="per-key"] .tokens:not(:empty)');
  assert.match(await text(page, "#client-who"), /Key acme/);
  await page.waitForSelector("#client-refusals table");
  assert.match(await fragment(page), /^#buckets\?.*who=acme.*key=acme/);
  await page.click(".client-head >> text=Explain a request");
  assert.equal(await page.inputValue("#explain-form [name=key_id]"), "acme");
  assert.deepEqual(wrong, []);
  await close();
});

test("three clicks on another gateway answer why a key was refused, after the rule was renamed there", async () => {
  const more = "[audit]\nstream = true\n";
  const refusing = await startGateway({ more });
  const asked = await startGateway({ more, beside: refusing, change: (text) => text.replace("[rules.per-key]", "[rules.per-client]") });
  try {
    for (let count = 0; count < 30; count += 1) await send(refusing.gateway, "/api/search", { "x-api-key": secret("acme"), "x-forwarded-for": "203.0.113.7" });
    const at = new Date(Date.now() - 500).toTimeString().slice(0, 5);
    // A run is in the stream when it is over.
    await eventually("the record", async () => (await (await fetch(`${asked.admin}/api/audit?all=true&key=acme`)).json()).refusal_runs.length > 0);
    const { page, wrong, close } = await browser.open(asked.admin);
    let clicks = 0;
    const click = (selector) => {
      clicks += 1;
      return page.locator(selector).first().click();
    };
    await click('nav a[href="#refusals"]');
    await page.fill("#refusals-form [name=client]", "acme");
    await page.fill("#refusals-form [name=at]", at);
    await page.keyboard.press("Enter");
    await eventually("that this gateway has none", async () => /No matching refusals/.test(await text(page, "#refusal-list")));
    assert.match(await page.inputValue("#refusals-form [name=at]"), new RegExp(`^\\d{4}-\\d\\d-\\d\\d ${at}$`));
    await click("#refusal-list >> text=Of all gateways");
    await page.waitForSelector("#refusal-list table");
    await click("#refusal-list button.more");
    const detail = await eventually("the run", () => text(page, "#refusal-list tr.detail"));
    for (const part of ["Status429", "Routesearch", "Cost5 tokens", "Configurationno. 1", "Gateway"]) assert.ok(detail.includes(part), `${part} in ${detail}`);
    assert.match(detail, /Ruleper-key, 20\/s, burst 60|Rulesearch, 20\/s, burst 60/);
    assert.match(detail, /Tokens left[0-4]Refill[1-5] tokens? in \d+ ms at 20\/s/);
    assert.equal(clicks, 3);
    assert.deepEqual(wrong, []);
    await close();
  } finally {
    await asked.stop();
    await refusing.stop();
  }
});

test("p99 of a range is that of all its requests, and a range over a change of the clock has both offsets", async () => {
  const { page, wrong, close } = await openDay("#overview?range=2026-10-25T00:30:00Z/2026-10-25T01:30:00Z", { timezoneId: "Europe/Berlin" });
  await eventually("the p99", async () => (await page.locator(".tile", { hasText: "p99" }).locator("strong").textContent()) === "321 ms");
  assert.match(await note(page), /02:30:00 – 02:30:00 UTC\+02:00 → UTC\+01:00$/);
  assert.deepEqual(wrong, []);
  await close();
});

test("an overload is shown at the top and in Health, with its cause", async () => {
  const status = await (await fetch(`${gateway.admin}/api/status`)).json();
  let overloaded = true;
  const prepare = async (page) => {
    await serveSamples(page);
    await page.route(/\/api\/status$/, (route) => route.fulfill({ json: !overloaded ? status : {
      ...status,
      connections: { open: 18_211, max: 20_000, rejected_last_minute: { head_timeout: 4, max_connections_per_ip: 12_044 } },
      overloaded: { descriptors: false, memory: true, paused: true },
      memory: { resident_bytes: 985_661_440, max_bytes: 966_367_641 },
    } }));
  };
  const { page, wrong, close } = await browser.open(gateway.admin, { prepare, fragment: "#health" });
  await page.waitForSelector("#overload:not([hidden])");
  assert.match(await text(page, "#overload"), /^Overloaded: memory is over its limit; idle connections are closed, and new ones wait\.$/);
  const card = await text(page, "#connections");
  for (const part of ["overloaded", "18,211 of at most 20,000", "940 MiB of at most 922 MiB", "12,044"]) assert.ok(card.includes(part), `${part} in ${card}`);
  assert.ok(card.indexOf("max_connections_per_ip") < card.indexOf("head_timeout"), card);
  overloaded = false;
  await page.waitForSelector("#overload", { state: "hidden" });
  await eventually("the end", async () => /not overloaded/.test(await text(page, "#connections")));
  assert.deepEqual(wrong, []);
  await close();
});

const RUN = { first: "2026-11-22T10:03:01.000250Z", last: "2026-11-22T10:03:19.310002Z", count: 412, key: "acme", ip: "203.0.113.7", plan: "pro", open: false, route: "search", cost: 5, generation: 3 };

test("401s and shadow refusals are labelled as what they are", async () => {
  const runs = [
    { ...RUN, kind: "limit", status: 429, rule: "per-key", tokens: 2, reason: "limited", rate: "100/s", burst: 500 },
    { ...RUN, kind: "unavailable", status: 503, rule: "strict", tokens: null, reason: "redis_unavailable" },
    { ...RUN, kind: "unauthorized", status: 401, rule: null, plan: null, key: null, tokens: null, cost: null, reason: "unknown_key", key_from: "header:x-api-key" },
    { ...RUN, kind: "shadow", status: null, rule: "tighter", tokens: 0, reason: null },
  ];
  const prepare = async (page) => {
    await serveSamples(page);
    await page.route(/\/api\/audit\?/, (route) => route.fulfill({ json: { refusal_runs: runs, more: 0, dropped: 0, kept_since: "2026-11-22T09:00:00Z" } }));
  };
  const { page, wrong, close } = await browser.open(gateway.admin, { prepare, fragment: "#refusals?zone=utc" });
  await page.waitForSelector("#refusal-list table");
  const details = {};
  for (const [index, { kind }] of runs.entries()) {
    const row = page.locator("#refusal-list tbody tr:not(.detail)").nth(index);
    const badge = await row.locator(".badge").first().textContent();
    await row.locator("button.more").click();
    await page.waitForSelector("#refusal-list tr.detail");
    details[badge] = await text(page, "#refusal-list tr.detail");
    await row.locator("button.more").click();
    assert.ok(details[badge], kind);
    await page.waitForSelector("#refusal-list tr.detail", { state: "detached" });
  }
  assert.deepEqual(Object.keys(details).sort(), ["401", "429", "503", "shadow"]);
  assert.match(details["429"], /A rate limit refused.*per-key, 100\/s, burst 500.*Routesearch.*Cost5 tokens.*Tokens left2.*no\. 3/);
  assert.match(details["503"], /Redis was unavailable/);
  assert.match(details["401"], /no valid API key\. No rate limit refused them.*unknown key.*header:x-api-key/);
  assert.match(details.shadow, /would have refused these requests, but let them pass/);
  assert.deepEqual(wrong, []);
  await close();
});

test("refusals of all gateways are listed where they can be, and named", async () => {
  const run = { ...RUN, kind: "limit", status: 429, rule: "per-key", tokens: 0, reason: "limited", gateway: "gw-2" };
  const asked = [];
  const prepare = async (page) => {
    await serveSamples(page);
    await page.route(/\/api\/policy$/, async (route) => {
      const policy = await (await route.fetch()).json();
      await route.fulfill({ json: { ...policy, audit: { stream: 10_000, all_gateways: true } } });
    });
    await page.route(/\/api\/audit\?/, (route) => {
      asked.push(new URL(route.request().url()).searchParams);
      return route.fulfill({ json: { refusal_runs: [run], more: 0, dropped: 0, incomplete: "the stream was not read." } });
    });
  };
  const { page, wrong, close } = await browser.open(gateway.admin, { prepare, fragment: "#refusals?key=acme" });
  await page.check("#refusals-form [name=all]");
  assert.match(await fragment(page), /gateways=all/);
  await eventually("the note", async () => /of all gateways.*Runs of other gateways may be missing: the stream was not read\.$/.test(await text(page, "#refusals-note")));
  await page.click("#refusal-list button.more");
  assert.match(await text(page, "#refusal-list tr.detail"), /Gatewaygw-2/);
  await eventually("the client's", async () => /^Refusal runs of all gateways\./.test(await text(page, "#client-refusals-note")));
  assert.ok(asked.some((query) => query.get("all") === "true" && query.get("key") === "acme"));
  assert.deepEqual(wrong, []);
  await close();
});

test("gateway that does not answer is named as such, and the page recovers", async () => {
  let fails = true;
  const prepare = async (page) => {
    await serveSamples(page);
    await page.route(/\/api\/(audit|status)/, (route) => (fails ? route.abort() : route.continue()));
  };
  const { page, close } = await browser.open(gateway.admin, { prepare, fragment: "#refusals?key=acme" });
  for (const id of ["refusal-list", "breaker", "client-refusals"]) {
    await eventually(id, async () => (await text(page, `#${id}`)) === "The gateway does not answer.");
  }
  fails = false;
  await page.waitForSelector("#refusal-list table");
  await page.waitForSelector("#breaker .facts");
  await close();
});

test("warnings of the file are shown with its changes", async () => {
  const reloads = [{
    at: "2026-11-22T10:00:00.123Z", cause: "file_changed", result: "applied", generation: 2, changes: [], more_changes: 0,
    warnings: [{ message: "no rule limits the plan `pro`", line: 12, column: 1, help: "give it a limit" }],
  }];
  const prepare = async (page) => {
    await serveSamples(page);
    await page.route(/\/api\/reloads$/, (route) => route.fulfill({ json: { generation: 2, reloads } }));
    await page.route(/\/api\/policy$/, async (route) => {
      const policy = await (await route.fetch()).json();
      await route.fulfill({ json: { ...policy, warnings: reloads[0].warnings, more_warnings: 2 } });
    });
  };
  const { page, wrong, close } = await browser.open(gateway.admin, { prepare });
  await page.waitForSelector("#reloads .diff");
  await eventually("those of the file", async () => /^The file in force has 3 warnings.*`pro`.*and 2 more$/.test(await text(page, "#file-warnings")));
  assert.match(await text(page, "#reloads"), /warning line 12:1 {2}no rule limits the plan `pro`give it a limit/);
  assert.deepEqual(wrong, []);
  await close();
});
