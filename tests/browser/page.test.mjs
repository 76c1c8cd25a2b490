// The dashboard in a real browser, with a real gateway under load: `make test-browser`.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { AXE, CROWD, eventually, load, overflowing, pause, secret, send, startBrowser, startGateway } from "./support.mjs";

/** Folder for screenshots, if any. */
const PICTURES = process.env.PICTURES;

const PHONE = { viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true };

let gateway;
let browser;
let quiet;

before(async () => {
  gateway = await startGateway();
  quiet = load(gateway.gateway, CROWD);
  browser = await startBrowser();
});

after(async () => {
  quiet?.();
  await browser?.stop();
  await gateway?.stop();
});

const number = (text) => Number(text.replaceAll(",", "").replace(/^-?$/, "0"));
const text = (page, selector) => page.textContent(selector);
const tile = (page, title) => page.locator(".tile", { hasText: title }).locator("strong").textContent();

/** What is drawn in a chart, as one number: other pixels, another number. */
const drawn = (page, id) => page.evaluate((id) => {
  const canvas = document.querySelector(`#${id} canvas`);
  if (!canvas) return null;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let sum = 0;
  for (let index = 0; index < data.length; index += 1) sum = (sum * 31 + data[index]) >>> 0;
  return sum;
}, id);

async function picture(page, name) {
  if (!PICTURES) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
}

/** Watches a client's buckets, and waits until the first is there. */
async function watch(page, id, more = {}) {
  for (const [name, value] of Object.entries({ id, ...more })) {
    if (name === "kind" || name === "route") await page.selectOption(`#client-form [name=${name}]`, value);
    else await page.fill(`#client-form [name=${name}]`, value);
  }
  await page.click("#client-form button[type=submit]");
  await page.waitForSelector(".bucket-card .tokens:not(:empty)");
}

const tokens = async (page, rule) => number(await text(page, `[data-rule="${rule}"] .tokens`));

/** Violations of the given weight, as sentences. */
async function violations(page) {
  await page.evaluate(readFileSync(AXE, "utf8"));
  const { violations } = await page.evaluate(() => axe.run());
  return violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ target }) => target.join(" ")).join(", ")}`);
}

test("page loads without errors and sends requests only to the gateway", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.waitForSelector('#live[data-state="live"]');
  await page.waitForSelector("#busiest table");
  await page.waitForSelector("#rules table");
  await page.waitForSelector("#upstreams table");
  await eventually("the tiles to count", async () => Number.parseFloat(await tile(page, "Requests/s")) > 10);
  assert.equal(await tile(page, "Breaker"), "closed");
  assert.equal(await tile(page, "Gateways"), "1");
  assert.match(await text(page, "#rules"), /What a plan buys\./);
  await pause(3_000);
  assert.deepEqual(wrong, []);
  await close();
});

test("charts change under load, with refusals by plan and by rule", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  for (const id of ["by-plan", "by-rule", "sources"]) {
    await page.locator(`#${id}`).scrollIntoViewIfNeeded();
    const first = await eventually(`${id} to be drawn`, () => drawn(page, id));
    await eventually(`${id} to move`, async () => (await drawn(page, id)) !== first);
  }
  const cell = (id, name, column) => page.locator(`#${id}-legend tr`, { hasText: name }).locator("td").nth(column).textContent();
  await eventually("refusals of the plan free", async () => number(await cell("by-plan", "free", 1)) > 0);
  await eventually("refusals of the rule per-key", async () => number(await cell("by-rule", "refused by per-key", 0)) > 0);
  assert.deepEqual(wrong, []);
  await close();
});

test("request without a valid key counts as 401, once, and not as allowed", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  const stop = load(gateway.gateway, [{ key: "not-in-the-file", ip: "198.51.100.99", perSecond: 3 }]);
  const rate = (name) => page.locator("#by-rule-legend tr", { hasText: name }).locator("td").textContent().then(number);
  await eventually("a rate of 401s", async () => (await rate("without a valid key (401)")) > 0);
  await eventually("a tile with them", async () => number((await tile(page, "401")).replace(" %", "")) > 0);
  await page.selectOption("#refusals-form [name=kind]", "unauthorized");
  await eventually("a run of them", async () => /address 198\.51\.100\.99.*401/.test(await text(page, "#refusal-list tbody")));
  stop();
  assert.deepEqual(wrong, []);
  await close();
});

test("traffic has status classes, and latency by route and by upstream", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.waitForSelector('#by-route button[data-latency="route:search"]');
  await page.click('#by-route button[data-latency="route:rest"]');
  await eventually("its latency", async () => /\d (ms|s)/.test(await text(page, "#latency-legend")));
  for (const range of ["15m", "1h", "24h"]) {
    await page.selectOption("#range-select", range);
    await eventually(`samples of ${range}`, async () => /^\d/.test(await page.locator("#statuses-legend tfoot td").textContent()));
  }
  assert.deepEqual(wrong, []);
  await close();
});

test("busiest and most refused clients are listed, and a click shows their buckets", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.waitForSelector("#busiest >> text=big-corp");
  await page.waitForSelector("#most-refused >> text=initech");
  await page.click('#most-refused button[data-id="initech"]');
  await page.waitForSelector('[data-rule="per-key"] .tokens:not(:empty)');
  assert.match(await text(page, "#client-who"), /Key initech, on the plan free/);
  assert.deepEqual(wrong, []);
  await close();
});

test("refusals are listed and filtered, and a click shows the client's buckets", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  const rows = () => page.locator("#refusal-list tbody tr").allTextContents();
  const all = (rows, part) => rows.length > 0 && rows.every((row) => row.includes(part));
  await eventually("refusals of several", async () => new Set(await rows()).size > 1);
  assert.match(await text(page, "#refusals-note"), /of this gateway\./);

  await page.fill("#refusals-form [name=client]", "192.0.2.14");
  await eventually("those of the address", async () => all(await rows(), "192.0.2.14"));
  await page.fill("#refusals-form [name=client]", "initec");
  await eventually("a suggestion", async () => /did you mean `initech`/.test(await text(page, "#refusal-list")));
  await page.fill("#refusals-form [name=client]", "initech");
  await page.selectOption("#refusals-form [name=kind]", "limit");
  await eventually("those of the key", async () => all(await rows(), "key initech"));
  const parts = ["from 198.51.100.77", "per-key", "plan free", "open"];
  // A run ends after a minute, and then another one begins.
  await eventually("the open run", async () => {
    const [first] = await rows();
    return parts.every((part) => first?.includes(part));
  });
  const count = async () => number(await page.locator("#refusal-list tbody tr td.number").first().textContent());
  const before = await count();
  await eventually("the count to grow", async () => (await count()) !== before);

  await page.selectOption("#refusals-rule", "per-ip");
  await eventually("no match", async () => /^No matching refusals\./.test(await text(page, "#refusal-list")));
  await page.selectOption("#refusals-rule", "per-key");
  await page.click('#refusal-list button[data-id="initech"]');
  await page.waitForSelector('[data-rule="per-ip"] .tokens:not(:empty)');
  assert.match(await text(page, "#client-who"), /Key initech from 198\.51\.100\.77, on the plan free/);
  // The browser logs the 400 for an incomplete name.
  assert.deepEqual(wrong.filter((line) => !line.includes("400")), []);
  await close();
});

test("more refusals are shown on request", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  for (let client = 0; client < 14; client += 1) {
    await Promise.all(Array.from({ length: 40 }, () => send(gateway.gateway, "/", { "x-forwarded-for": `198.18.1.${client}` })));
  }
  const rows = () => page.locator("#refusal-list tbody tr").count();
  await page.click("#refusals-more button");
  await eventually("all of them", async () => (await rows()) > 14);
  assert.deepEqual(wrong, []);
  await close();
});

test("bucket view shows draining, refilling and the next allowed request", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await watch(page, "198.18.0.9", { kind: "ip" });
  await eventually("a full bucket", async () => (await tokens(page, "per-key")) === 20);
  for (let count = 0; count < 25; count += 1) await send(gateway.gateway, "/", { "x-forwarded-for": "198.18.0.9" });
  const low = await eventually("it to be drained", async () => {
    const left = await tokens(page, "per-key");
    return left < 8 && left + 1;
  });
  await eventually("it to fill", async () => (await tokens(page, "per-key")) > low + 5);
  const stop = load(gateway.gateway, [{ ip: "198.18.0.9", perSecond: 30 }]);
  await eventually("the next allowed moment", async () => /^in \d+ ms, at \d\d:\d\d:\d\d\.\d{3}$/.test(await text(page, '[data-rule="per-key"] .next')));
  stop();
  await eventually("a full bucket again", async () => (await text(page, '[data-rule="per-key"] .full')) === "now");
  assert.deepEqual(wrong, []);
  await close();
});

test("next request shows the cost of its route", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.waitForSelector('#client-form [name=route] option[value="search"]', { state: "attached" });
  await watch(page, "big-corp", { route: "search" });
  assert.equal(await text(page, '[data-rule="search"] .takes'), "Next request allowed (cost 5)");
  await watch(page, "big-corp", { route: "rest" });
  assert.equal(await text(page, '[data-rule="per-key"] .takes'), "Next request allowed");
  assert.equal(await page.locator('[data-rule="search"]').count(), 0);
  assert.deepEqual(wrong, []);
  await close();
});

test("reset and grant need a confirmation", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  const stop = load(gateway.gateway, [{ ip: "198.18.0.10", perSecond: 40 }]);
  await watch(page, "198.18.0.10", { kind: "ip" });
  await eventually("it to be drained", async () => (await tokens(page, "per-key")) < 3);
  await page.click('button[aria-label="Reset per-key"]');
  await page.click('#confirm button[value="no"]');
  assert.equal(await text(page, "#client-result"), "");
  await page.click('button[aria-label="Reset per-key"]');
  await page.click("#confirm-yes");
  await page.waitForSelector('#client-result[data-kind="good"]');
  assert.match(await text(page, "#client-result"), /Reset: per-key \d+ → 20/);
  await eventually("it to be drained again", async () => (await tokens(page, "per-key")) < 3);
  await page.click('button[aria-label="Grant tokens to per-key"]');
  await page.fill("#confirm-input", "7");
  await page.click("#confirm-yes");
  await eventually("the grant", async () => /Granted: per-key \d+ → \d+/.test(await text(page, "#client-result")));
  const [, from, to] = /(\d+) → (\d+)/.exec(await text(page, "#client-result"));
  assert.equal(Number(to) - Number(from), 7);
  stop();
  assert.deepEqual(wrong, []);
  await close();
});

test("unknown client shows an error", async () => {
  const { page, close } = await browser.open(gateway.admin);
  await page.fill("#client-form [name=id]", "missing");
  await page.click("#client-form button[type=submit]");
  await eventually("the reason", async () => /missing/.test(await text(page, "#client-who")) && !/Loading/.test(await text(page, "#client-who")));
  await close();
});

test("request is explained", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.fill("#explain-form [name=path]", "/api/search");
  await page.fill("#explain-form [name=key]", secret("big-corp"));
  await page.fill("#explain-form [name=headers]", "x-tenant: a");
  await page.click("#explain-form button[type=submit]");
  await page.waitForSelector("#explanation .verdict");
  const answer = await text(page, "#explanation");
  for (const part of ["big-corp", "enterprise", "search", "Allowed"]) assert.ok(answer.includes(part), `${part} in ${answer}`);
  assert.deepEqual(wrong, []);
  await close();
});

test("request is explained by the id of a key", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.fill("#explain-form [name=key_id]", "big-corp");
  await page.fill("#explain-form [name=path]", "/api/search");
  await page.press("#explain-form [name=path]", "Enter");
  await page.waitForSelector("#explanation .verdict");
  const answer = await text(page, "#explanation");
  for (const part of ["big-corp", "enterprise", "search", "Allowed"]) assert.ok(answer.includes(part), `${part} in ${answer}`);
  assert.deepEqual(wrong, []);
  await close();
});

test("reloads show changes and errors", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  gateway.save(gateway.text.replace('rate = "40/s"', 'rate = "50/s"'));
  await page.click("#reload");
  await eventually("the diff", async () => {
    const log = await text(page, "#reloads");
    return log.includes('- "40/s"') && log.includes('+ "50/s"');
  });
  await eventually("the tile", async () => (await tile(page, "Configuration")) === "no. 2");
  gateway.save(gateway.text.replace('per = ["ip"]', 'per = ["ipp"]'));
  await page.click("#reload");
  await eventually("the error", async () => /ipp/.test(await text(page, "#reloads")));
  gateway.save(gateway.text);
  await page.click("#reload");
  await eventually("the valid file", async () => (await tile(page, "Configuration")) === "no. 3");
  // The browser logs the 422 for a rejected file.
  assert.deepEqual(wrong.filter((line) => !line.includes("422")), []);
  await close();
});

test("breaker shows an outage and the recovery", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  gateway.redis.pause();
  await eventually("the breaker to open", async () => (await tile(page, "Breaker")) === "open");
  await eventually("local decisions", async () => number(await page.locator("#sources-legend tr", { hasText: "local fallback" }).locator("td").textContent()) > 0);
  gateway.redis.resume();
  await eventually("the breaker to close", async () => (await tile(page, "Breaker")) === "closed");
  await eventually("the transitions", async () => /open/.test(await page.locator("#breaker .moments").textContent()));
  assert.deepEqual(wrong.filter((line) => !line.includes("503")), []);
  await close();
});

test("an operator rehearses an outage with the override", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.click('#breaker button[data-override="open"]');
  await page.click("#confirm-yes");
  await eventually("the breaker to open", async () => (await tile(page, "Breaker")) === "open");
  await page.click('#breaker button[data-override="auto"]');
  await page.click("#confirm-yes");
  await eventually("the breaker to close", async () => (await tile(page, "Breaker")) === "closed");
  assert.deepEqual(wrong, []);
  await close();
});

test("quotas are listed with what is used of their current periods", async () => {
  const without = await browser.open(gateway.admin);
  await eventually("the rules", async () => /per-key/.test(await text(without.page, "#rules")));
  assert.equal(await without.page.isVisible("#quotas"), false);
  await without.close();
  const more = `[rules.monthly]\nper = ["key"]\nkind = "fixed_window"\nlimit = "40/month"\n`;
  const own = await startGateway({ more });
  for (let count = 0; count < 10; count += 1) await send(own.gateway, "/", { "X-Api-Key": secret("acme") });
  const { page, wrong, close } = await browser.open(own.admin);
  await eventually("the quota", async () => /acme.*10 25.*40.*monthly/s.test(await text(page, "#usage")));
  assert.equal(await page.isVisible("#quotas-link"), true);
  assert.equal(await text(page, "#usage-note"), "Those of 1 quota with the largest share. For bills: GET /api/usage.");
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(wrong, []);
  await close();
  await own.stop();
});

test("playground has every kind of limit", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  const kinds = await page.locator('#bucket-form [name="kind"] option').evaluateAll((options) => options.map(({ value }) => value));
  const promises = {
    token_bucket: /burst \+ rate · t/,
    fixed_window: /in a period of 5 s/,
    concurrency: /No pattern gets more than 20 at once/,
    sliding_window: /in any 5 s, and none is refused below that/,
    leaky_bucket: /longest wait here is 2\.0 s/,
  };
  assert.deepEqual(kinds, Object.keys(promises));
  await page.locator("#learn").scrollIntoViewIfNeeded();
  let before = null;
  for (const kind of kinds) {
    await page.selectOption('#bucket-form [name="kind"]', kind);
    assert.match(await text(page, "#bucket-summary"), promises[kind], kind);
    assert.equal(await page.isVisible(`#learn [data-kind-of-limit="${kind}"]`), true);
    assert.equal(await page.locator("#learn .lede:visible").count(), 1);
    const now = await drawn(page, "bucket-chart");
    assert.notEqual(now, before, kind);
    before = now;
    await picture(page, `playground-${kind}`);
  }
  assert.equal(await page.isVisible('#bucket-form [name="burst"]'), false, "a leaky bucket has no burst");
  assert.deepEqual(wrong, []);
  await close();
});

test("interactive bucket follows its controls", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.locator("#learn").scrollIntoViewIfNeeded();
  assert.match(await text(page, "#bucket-summary"), /Of 160 requests in 20 s, 119 are accepted and 41 refused/);
  const before = await drawn(page, "bucket-chart");
  await page.focus('#bucket-form [name="rate"]');
  await page.keyboard.press("End");
  await page.selectOption('#bucket-form [name="pattern"]', "random");
  await eventually("another summary", async () => /and 0 refused/.test(await text(page, "#bucket-summary")));
  assert.notEqual(await drawn(page, "bucket-chart"), before);
  await page.click("#play");
  assert.equal(await text(page, "#play"), "Stop");
  const early = await drawn(page, "bucket-chart");
  await eventually("the replay", async () => (await drawn(page, "bucket-chart")) !== early);
  assert.deepEqual(wrong, []);
  await close();
});

test("colour scheme follows the system or the choice", async () => {
  const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const { page, wrong, close } = await browser.open(gateway.admin, { colorScheme: "dark" });
  const dark = await background(page);
  await page.click("#theme");
  const light = await background(page);
  assert.notEqual(dark, light);
  await page.reload();
  assert.equal(await background(page), light);
  await page.click("#theme");
  assert.equal(await background(page), dark);
  assert.equal(await text(page, "#theme"), "Dark");
  assert.deepEqual(wrong, []);
  await close();
});

test("keyboard reaches every control, and focus is visible", async () => {
  const { page, close } = await browser.open(gateway.admin);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  const seen = new Set();
  for (;;) {
    await page.keyboard.press("Tab");
    const { name, outline } = await page.evaluate(() => {
      const element = document.activeElement;
      const name = element === document.body ? "" : element.id || element.name || element.textContent.trim();
      return { name, outline: getComputedStyle(element).outlineStyle };
    });
    // After the last control, focus leaves the page.
    if (!name) break;
    seen.add(name);
    assert.notEqual(outline, "none", name);
  }
  for (const name of ["theme", "range-select", "range-at", "range-in", "zone", "copy-link", "clients-rule", "client", "at", "refusals-rule", "key_id", "id", "reload", "rate", "play"]) assert.ok(seen.has(name), `${name} in ${[...seen]}`);
  await close();
});

test("sign-in dialog asks for the token once and reports a wrong one", async () => {
  const token = "0123456789abcdef0123456789abcdef";
  const guarded = await startGateway({ more: `[admin]\ntoken = "${token}"\n` });
  try {
    const { page, wrong, close } = await browser.open(guarded.admin);
    for (const [given, error] of [["not-the-token", ""], [token, "The token is wrong."]]) {
      await page.waitForSelector("#sign-in[open]");
      assert.equal(await text(page, "#sign-in-error"), error);
      assert.deepEqual(await violations(page), []);
      await page.fill("#sign-in-token", given);
      await page.keyboard.press("Enter");
    }
    await page.waitForSelector('#live[data-state="live"]');
    await page.reload();
    await page.waitForSelector('#live[data-state="live"]');
    assert.equal(await page.locator("#sign-in").isVisible(), false);
    assert.deepEqual(wrong.filter((line) => !line.includes("401")), []);
    await close();
  } finally {
    await guarded.stop();
  }
});

for (const [name, options] of [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["phone", { ...PHONE, colorScheme: "light" }],
  ["phone in the dark", { ...PHONE, colorScheme: "dark" }],
]) {
  test(`page is accessible and does not overflow: ${name}`, async () => {
    const { page, wrong, close } = await browser.open(gateway.admin, options);
    await watch(page, "acme", { ip: "203.0.113.7" });
    await page.fill("#explain-form [name=path]", "/api/search");
    await page.click("#explain-form button[type=submit]");
    await page.waitForSelector("#explanation .verdict");
    await page.waitForSelector("#busiest table");
    await page.waitForSelector("#by-route table");
    await page.click("#refusal-list button.more");
    await page.waitForSelector("#refusal-list tr.detail");
    const width = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    assert.ok(width[0] <= width[1], `${width}`);
    assert.deepEqual(await overflowing(page), []);
    assert.deepEqual(await violations(page), []);
    for (const id of ["overview", "traffic", "clients", "refusals", "buckets", "explain", "health", "changes", "learn"]) {
      await page.evaluate((id) => document.getElementById(id).scrollIntoView({ behavior: "instant" }), id);
      if (PICTURES) await pause(1_500);
      await picture(page, `${name.replaceAll(" ", "-")}-${id}`);
    }
    assert.deepEqual(wrong, []);
    await close();
  });
}

test("confirmation dialog is accessible", async () => {
  const { page, close } = await browser.open(gateway.admin);
  await watch(page, "acme");
  await page.click('button[aria-label="Grant tokens to per-key"]');
  assert.deepEqual(await violations(page), []);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#confirm").isVisible(), false);
  await close();
});
