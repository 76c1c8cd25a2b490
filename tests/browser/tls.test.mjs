// Chromium over TLS: HTTP/2, limits and WebSocket on one port.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";

import { eventually, freePort, startBrowser, startGateway } from "./support.mjs";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

let folder, server, gateway, browser, address;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "tollgate-tls-"));
  const [certificate, key] = ["cert.pem", "cert.key"].map((name) => join(folder, name));
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "30", "-subj", "/CN=localhost",
    "-addext", "subjectAltName=DNS:localhost", "-extensions", "usr_cert", "-keyout", key, "-out", certificate,
  ], { stdio: "ignore" });
  server = spawn(join(ROOT, ".deps/python-peers/bin/python"), ["-u", join(ROOT, "tests/it/support/peers/websocket_server.py")]);
  const log = [];
  server.stdout.on("data", (text) => log.push(text));
  const port = await eventually("the WebSocket server", () => /listening on (\d+)/.exec(log.join(""))?.[1]);
  gateway = await startGateway({ more: `
[[listeners]]
address = "127.0.0.1:${await freePort()}"
certificates = [{ cert = "${certificate}", key = "${key}" }]
[upstreams.socket]
servers = ["127.0.0.1:${port}"]
[routes.socket]
path = "/socket"
upstream = "socket"
` });
  address = await eventually("the TLS listener", () => /listening on https:\/\/127\.0\.0\.1:(\d+)/.exec(gateway.log())?.[1]);
  address = `https://localhost:${address}`;
  browser = await startBrowser();
});

after(async () => {
  await browser?.stop();
  await gateway?.stop();
  server?.kill("SIGKILL");
  rmSync(folder, { recursive: true });
});

test("a WebSocket is forwarded", async () => {
  const { page, wrong, close } = await browser.open(address, { ignoreHTTPSErrors: true });
  const echoes = await page.evaluate(() => new Promise((resolve, reject) => {
    const socket = new WebSocket(`wss://${location.host}/socket`, ["echo"]);
    const seen = [];
    socket.onopen = () => { socket.send("text"); socket.send("x".repeat(100_000)); };
    socket.onmessage = ({ data }) => {
      seen.push(data.length);
      if (seen.length === 2) socket.close(1000);
    };
    socket.onclose = ({ code }) => resolve({ seen, code, protocol: socket.protocol });
    socket.onerror = () => reject(new Error("the WebSocket failed"));
  }));
  assert.deepEqual(echoes, { seen: [4, 100_000], code: 1000, protocol: "echo" });
  assert.deepEqual(wrong, []);
  await close();
});

// Last: it uses up the limit of the address.
test("page and requests use HTTP/2, and limits hold", async () => {
  const { page, close } = await browser.open(address, { ignoreHTTPSErrors: true });
  const protocol = await page.evaluate(() => performance.getEntriesByType("navigation")[0].nextHopProtocol);
  assert.equal(protocol, "h2");
  const statuses = await page.evaluate(async () => {
    const answers = await Promise.all(Array.from({ length: 60 }, () => fetch("/", { cache: "no-store" })));
    return answers.map((answer) => answer.status);
  });
  const count = (status) => statuses.filter((other) => other === status).length;
  assert.equal(count(200) + count(429), 60, statuses.join());
  assert.ok(count(200) >= 10 && count(429) >= 10, statuses.join());
  await close();
});
