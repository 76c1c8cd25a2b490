// The page of the key store in a real browser: `make test-browser`.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { AXE, eventually, overflowing, send, startBrowser, startGateway } from "./support.mjs";

/** Folder for screenshots, if any. */
const PICTURES = process.env.PICTURES;

const STORE = "[key_store]\nurl = \"redis\"\n";

let gateway;
let browser;

before(async () => {
  gateway = await startGateway({ more: STORE });
  browser = await startBrowser();
});

after(async () => {
  await browser?.stop();
  await gateway?.stop();
});

const text = (page, selector) => page.textContent(selector);

async function picture(page, name) {
  if (!PICTURES) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
}

const ids = (page) => page.locator("#key-list tbody th").allTextContents();

const statusOf = (key) => send(gateway.gateway, "/x", { "x-api-key": key });

/** Imports clients, and returns how long that took. */
async function importClients(count) {
  const line = (index) => JSON.stringify({ id: `c${String(index).padStart(6, "0")}`, plan: index % 2 ? "pro" : "free", tenant: index % 3 ? null : "north", metadata: index % 5 ? {} : { owner: "anna" }, secrets: [] });
  for (let from = 0; from < count; from += 5_000) {
    const body = Array.from({ length: Math.min(5_000, count - from) }, (_, index) => line(from + index)).join("\n");
    const response = await fetch(`${gateway.admin}/api/keys/import`, { method: "POST", body });
    assert.equal(response.status, 200);
  }
}

test("a client is created, rotated, disabled and deleted, and its key is shown once", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.waitForSelector("#keys:not([hidden])");
  await page.click("#keys-create");
  await page.fill("#new-client-form [name=id]", "acme-store");
  await page.selectOption("#new-client-form [name=plan]", "pro");
  await page.fill("#new-client-form [name=metadata]", "owner=anna, note=a=b");
  await page.click("#new-client-form button[type=submit]");
  const first = await eventually("the key", () => page.inputValue("#new-key-text"));
  assert.match(first, /^tg_[0-9A-Za-z]{49}$/);
  await picture(page, "keys-new");
  await page.click("#new-key button[type=submit]");
  // The event that a dialog has closed comes after it has.
  await eventually("the key to leave its dialog", async () => (await page.inputValue("#new-key-text")) === "");
  await eventually("the client", async () => (await text(page, "#key-list")).includes("note: a=b"));
  assert.ok(!(await page.content()).includes(first), "the key leaves the page with its dialog");
  await eventually("the key in force", async () => (await statusOf(first)) === 200);

  await page.click('#key-list [data-call="rotate"]');
  await page.fill("#confirm-input", "0");
  await page.click("#confirm-yes");
  const second = await eventually("another key", () => page.inputValue("#new-key-text"));
  await page.click("#new-key button[type=submit]");
  await eventually("the first key to end", async () => (await statusOf(first)) === 401);
  assert.equal(await statusOf(second), 200);
  await eventually("the last use", async () => (await page.locator("#key-list time").count()) > 0);

  await page.click('#key-list [data-call="disable"]');
  await page.click("#confirm-yes");
  await eventually("the state", async () => /disabled/.test(await text(page, "#key-list")));
  await eventually("401", async () => (await statusOf(second)) === 401);
  await page.click('#key-list [data-call="enable"]');
  await eventually("200", async () => (await statusOf(second)) === 200);

  // The changes are listed, with who made them.
  await eventually("the changes", async () => /loopback.*acme-store.*enabled/s.test(await text(page, "#change-list")));

  await page.click('#key-list [data-call="delete"]');
  await page.click("#confirm-yes");
  await eventually("no client", async () => /No such clients/.test(await text(page, "#key-list")));

  // An error stays in the dialog.
  await page.click("#keys-create");
  await page.fill("#new-client-form [name=id]", "acme");
  await page.selectOption("#new-client-form [name=plan]", "pro");
  await page.click("#new-client-form button[type=submit]");
  await eventually("the error", async () => /the file has a client/.test(await text(page, "#new-client-error")));
  await page.click("#new-client-cancel");
  assert.deepEqual(wrong.filter((line) => !line.includes("409")), []);
  await close();
});

test("a large store is shown page by page, filtered, and without violations of accessibility", async () => {
  await importClients(20_000);
  const { page, close } = await browser.open(gateway.admin);
  await page.waitForSelector("#keys:not([hidden])");
  await eventually("the first page", async () => (await ids(page)).length === 25);
  assert.match(await text(page, "#keys-note"), /20,00[01] clients/);
  await page.click("#keys-next");
  await eventually("the second page", async () => (await ids(page))[0]?.startsWith("c000025"));
  await page.click("#keys-previous");
  await eventually("the first page again", async () => (await ids(page))[0]?.startsWith("c000000"));
  await page.fill("#keys-form [name=from]", "c019990");
  await eventually("the last ones", async () => (await ids(page)).length === 9);
  await page.fill("#keys-form [name=from]", "");
  await page.fill("#keys-form [name=tenant]", "north");
  await page.selectOption("#keys-form [name=plan]", "pro");
  await page.fill("#keys-form [name=metadata]", "owner=anna");
  await eventually("the filtered ones", async () => (await ids(page))[0]?.startsWith("c000015"));
  await picture(page, "keys");
  await page.locator("#keys").scrollIntoViewIfNeeded();
  await picture(page, "keys-section");
  await page.evaluate(readFileSync(AXE, "utf8"));
  const { violations } = await page.evaluate(() => axe.run("#keys"));
  assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(", ")}`), []);
  await close();
  const phone = await browser.open(gateway.admin, { viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true });
  await eventually("the page on a phone", async () => (await ids(phone.page)).length === 25);
  assert.deepEqual((await overflowing(phone.page)).filter((line) => line.includes("key")), []);
  await phone.page.locator("#keys").scrollIntoViewIfNeeded();
  await picture(phone.page, "keys-phone");
  await phone.close();
});

test("a token without the role does not see the page", async () => {
  const hash = createHash("sha256").update("reader").digest("hex");
  const token = `[[admin.tokens]]\nname = "reader"\nsha256 = "${hash}"\nroles = ["read"]\n`;
  const other = await startGateway({ more: `${STORE}${token}` });
  const { page, close } = await browser.open(other.admin);
  await page.fill("#sign-in-token", "reader");
  await page.click("#sign-in button[type=submit]");
  await page.waitForSelector("#rules table");
  await eventually("the call that is refused", () => page.evaluate(() => performance.getEntriesByType("resource").some(({ name }) => name.includes("/api/keys?"))));
  assert.equal(await page.isVisible("#keys"), false);
  assert.equal(await page.isVisible("#keys-link"), false);
  await close();
  await other.stop();
});
