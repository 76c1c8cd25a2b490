// The top-ups of a client in a real browser: `make test-browser`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { AXE, eventually, overflowing, secret, send, startBrowser, startGateway } from "./support.mjs";

const QUOTA = "[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"4/year\"\ncost = 1\n";

let gateway;
let browser;

before(async () => {
  gateway = await startGateway({ more: QUOTA });
  browser = await startBrowser();
});

after(async () => {
  await browser?.stop();
  await gateway?.stop();
});

async function grant(body) {
  const response = await fetch(`${gateway.admin}/api/clients/key/acme/grant`, { method: "POST", body: JSON.stringify({ rule: "quota", ...body }) });
  assert.equal(response.status, 200);
}

/** The texts of each row of the list. */
const rows = (page) => page.locator("#client-top-ups tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));

async function watch(page) {
  await page.selectOption("#client-form [name=kind]", "key");
  await page.fill("#client-form [name=id]", "acme");
  await page.click("#client-form button[type=submit]");
  await page.waitForSelector(".bucket-card .tokens:not(:empty)");
}

test("top-ups are listed in the order of their use, and one is revoked after a confirmation", async () => {
  await grant({ tokens: 7, expires: "2035-01-31T12:30:00Z", id: "invoice-2", reason: "<b>bold</b>" });
  await grant({ tokens: 5, expires: "2034-01-31T12:30:00Z", id: "invoice-1" });
  const { page, wrong, close } = await browser.open(gateway.admin);
  await watch(page);
  const listed = await eventually("the list", async () => {
    const found = await rows(page);
    return found.length === 2 && found;
  });
  assert.deepEqual(listed.map((row) => row.slice(0, 5)), [
    ["invoice-1", "quota", "5", "5", "2034-01-31 12:30"],
    ["invoice-2", "quota", "7", "7", "2035-01-31 12:30"],
  ]);
  assert.equal(listed[1][6], "<b>bold</b>", "a text, whatever it contains");

  // Six requests use the quota of four, and two of the first top-up.
  for (let count = 0; count < 6; count += 1) assert.equal(await send(gateway.gateway, "/", { "x-api-key": secret("acme") }), 200);
  await eventually("what is left", async () => (await rows(page)).map((row) => row[2]).join() === "3,7");

  await page.evaluate(readFileSync(AXE, "utf8"));
  const found = await page.evaluate(() => window.axe.run("#client-top-ups"));
  assert.deepEqual(found.violations.map(({ id }) => id), []);
  assert.deepEqual(await overflowing(page), []);

  const revoke = page.getByRole("button", { name: "Revoke the top-up invoice-1 of quota" });
  await revoke.click();
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.equal((await rows(page)).length, 2, "cancelled");
  await revoke.click();
  assert.match(await page.textContent("#confirm-text"), /3 tokens/);
  await page.click("#confirm-yes");
  await eventually("one less", async () => (await rows(page)).map((row) => row[0]).join() === "invoice-2");
  assert.match(await page.textContent("#client-result"), /Revoked: quota 10 → 7/);
  assert.deepEqual(wrong, []);
  await close();
});

test("a client without top-ups has no list", async () => {
  const { page, wrong, close } = await browser.open(gateway.admin);
  await page.selectOption("#client-form [name=kind]", "key");
  await page.fill("#client-form [name=id]", "big-corp");
  await page.click("#client-form button[type=submit]");
  await page.waitForSelector(".bucket-card .tokens:not(:empty)");
  assert.equal(await page.locator("#client-top-ups table").count(), 0);
  assert.deepEqual(wrong, []);
  await close();
});
