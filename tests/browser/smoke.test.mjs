// Does the dashboard start? Each section of the page in a real browser shows data of a running gateway, without an
// error on the console: `make smoke`, which CI runs.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, test } from "node:test";

import { SECTIONS } from "../../src/admin/page/view.js";
import { CROWD, eventually, load, startBrowser, startGateway } from "./support.mjs";

const QUOTA = `
[rules.monthly]
per = ["key"]
kind = "fixed_window"
limit = "1000000/month"
[key_store]
url = "redis"
`;

let upstream;
let gateway;
let browser;
let stopLoad;

before(async () => {
  upstream = http.createServer((request, response) => response.end("ok")).listen(0, "127.0.0.1");
  await once(upstream, "listening");
  const server = `http://127.0.0.1:${upstream.address().port}`;
  gateway = await startGateway({ more: QUOTA, change: (text) => text.replace('servers = ["demo"]', `servers = ["${server}"]`) });
  stopLoad = load(gateway.gateway, CROWD);
  browser = await startBrowser();
});

after(async () => {
  stopLoad?.();
  await browser?.stop();
  await gateway?.stop();
  upstream?.close();
  upstream?.closeAllConnections();
});

const text = (page, selector) => page.textContent(selector);
const isDrawn = (page, id) => page.evaluate((id) => {
  const canvas = document.querySelector(`#${id} canvas`);
  return Boolean(canvas) && canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0);
}, id);

async function explained(page) {
  await page.fill("#explain-form [name=path]", "/api/search");
  await page.fill("#explain-form [name=key_id]", "acme");
  await page.click("#explain-form button[type=submit]");
  return eventually("the explanation", async () => /acme.*search/s.test(await text(page, "#explanation")));
}

async function watched(page) {
  await page.fill("#client-form [name=id]", "acme");
  await page.click("#client-form button[type=submit]");
  return eventually("the bucket of the client", async () => /\d/.test(await text(page, '[data-rule="per-key"] .tokens')));
}

/** Checks of each section: each waits until the section shows what the gateway reports. */
const CHECKS = {
  overview: (page) => eventually("requests per second", async () => Number.parseFloat(await page.locator(".tile strong").first().textContent()) > 0 && isDrawn(page, "by-plan") && isDrawn(page, "by-rule")),
  traffic: (page) => eventually("responses", async () => (await isDrawn(page, "statuses")) && /rest/.test(await text(page, "#by-route")) && /api/.test(await text(page, "#by-upstream"))),
  clients: (page) => eventually("clients", async () => /big-corp/.test(await text(page, "#busiest")) && /initech/.test(await text(page, "#most-refused"))),
  quotas: (page) => eventually("quotas", async () => (await page.isVisible("#quotas")) && /acme.*1,000,000.*monthly/s.test(await text(page, "#usage"))),
  keys: (page) => eventually("the key store", async () => (await page.isVisible("#keys")) && /0 clients/.test(await text(page, "#keys-note"))),
  refusals: (page) => eventually("refusals", async () => (await page.locator("#refusal-list tbody tr").count()) > 0),
  buckets: watched,
  explain: explained,
  health: (page) => eventually("the state of Redis, connections, upstreams", async () => /Redis decides\./.test(await text(page, "#breaker"))
    && /Open connections/.test(await text(page, "#connections")) && /127\.0\.0\.1:\d+.*ok/s.test(await text(page, "#upstreams")) && isDrawn(page, "sources")),
  limits: (page) => eventually("the rules", async () => /What a plan buys\./.test(await text(page, "#rules"))),
  async changes(page) {
    gateway.save(gateway.text.replace('rate = "40/s"', 'rate = "50/s"'));
    await page.click("#reload");
    return eventually("the reload", async () => (await text(page, "#reloads")).includes('+ "50/s"'));
  },
  async learn(page) {
    await page.locator("#learn").scrollIntoViewIfNeeded();
    return eventually("the simulated bucket", () => page.evaluate(() => Boolean(document.querySelector("#learn canvas, #learn svg"))));
  },
};

test("each section shows data of the running gateway, and the console has no error", async () => {
  assert.deepEqual(Object.keys(CHECKS), SECTIONS, "each section of the page has a check");
  const { page, wrong, close } = await browser.open(gateway.admin);
  try {
    for (const section of SECTIONS) {
      await CHECKS[section](page).catch((error) => { throw new Error(`section ${section}: ${error.message}; ${wrong.join("; ")}`); });
    }
    assert.deepEqual(wrong, []);
  } finally {
    await close();
  }
});

test("a module that does not parse is noticed", async () => {
  const prepare = (page) => page.route("**/page/health.js", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: `${await response.text()}\nfunction load() {}\nfunction load() {}\n` });
  });
  const { wrong, close } = await browser.open(gateway.admin, { prepare });
  await eventually("the error of the module", () => wrong.some((line) => line.includes("'load' has already been declared")));
  await close();
});
