// Chromium and CORS: what pages of allowed and of other origins can read, over HTTP/1.1 and over HTTP/2.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { eventually, freePort, startBrowser, startGateway } from "./support.mjs";

let folder, gateway, browser, servers, site, api, apiHttp2;
/** Requests that the upstreams got: method, path, cookie. */
let seen = [];

/** An upstream with CORS headers of its own, which must not reach the page. */
function answer(request, response) {
  seen.push({ method: request.method, path: request.url, cookie: request.headers.cookie });
  response.setHeader("access-control-allow-origin", "https://upstream.test");
  response.setHeader("content-type", "application/json");
  if (request.url === "/login") response.setHeader("set-cookie", "session=1; Path=/; HttpOnly");
  request.resume();
  request.on("end", () => response.end(JSON.stringify({ method: request.method, path: request.url })));
}

async function listening(server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server.address().port;
}

const config = (pages, port, port2, certificate, key, tls) => `
[server]
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
threads = 2
[[listeners]]
address = "127.0.0.1:${tls}"
certificates = [{ cert = "${certificate}", key = "${key}" }]
[cors]
origins = ["http://127.0.0.1:${pages}"]
credentials = true
[clients]
limits_path = "/limits"
[plans.free]
[keys.acme]
sha256 = "${createHash("sha256").update("secret-of-acme").digest("hex")}"
plan = "free"
[upstreams.api]
servers = ["127.0.0.1:${port}"]
[upstreams.http2]
servers = ["127.0.0.1:${port2}"]
protocol = "h2c"
[upstreams.dead]
servers = ["127.0.0.1:1"]
[routes.all]
upstream = "api"
path = "/*"
methods = ["GET", "PUT"]
[routes.http2]
path = "/http2"
upstream = "http2"
[routes.any]
path = "/any"
upstream = "api"
cors = { origins = ["*"] }
[routes.off]
path = "/off"
upstream = "api"
cors = false
[routes.dead]
path = "/dead"
upstream = "dead"
[routes.limited]
path = "/limited/{listener}"
upstream = "api"
[rules.once]
description = "One call."
per = ["key", "host"]
routes = ["limited"]
rate = "1/d"
`;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "tollgate-cors-"));
  const [certificate, key] = ["cert.pem", "cert.key"].map((name) => join(folder, name));
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "30", "-subj", "/CN=localhost",
    "-addext", "subjectAltName=DNS:localhost", "-extensions", "usr_cert", "-keyout", key, "-out", certificate,
  ], { stdio: "ignore" });
  const page = http.createServer((_, response) => response.setHeader("content-type", "text/html").end("<!doctype html><title>Page</title>"));
  servers = [page, http.createServer(answer), http2.createServer(answer)];
  const [pages, port, port2] = await Promise.all(servers.map(listening));
  const tls = await freePort();
  gateway = await startGateway({ change: () => config(pages, port, port2, certificate, key, tls) });
  await eventually("the TLS listener", () => gateway.log().includes(`listening on https://127.0.0.1:${tls}`));
  api = gateway.gateway;
  apiHttp2 = `https://localhost:${tls}`;
  site = { allowed: `http://127.0.0.1:${pages}`, other: `http://localhost:${pages}` };
  browser = await startBrowser();
});

after(async () => {
  await browser?.stop();
  await gateway?.stop();
  for (const server of servers ?? []) {
    server.close();
    server.closeAllConnections?.();
  }
  rmSync(folder, { recursive: true });
});

/** What a page of an origin gets: status, body and some headers, or the error. Each call is a URL and options of `fetch`. */
async function calls(origin, ...list) {
  seen = [];
  const { page, close } = await browser.open(origin, { ignoreHTTPSErrors: true });
  const results = await page.evaluate(async (list) => {
    const results = [];
    for (const [url, options] of list) {
      try {
        const response = await fetch(url, { cache: "no-store", ...options });
        const header = (name) => response.headers.get(name);
        results.push({
          status: response.status, body: await response.text(), retryAfter: header("retry-after"), remaining: header("x-ratelimit-remaining"),
          grpc: header("grpc-status"),
        });
      } catch (error) {
        results.push(String(error));
      }
    }
    return results;
  }, list);
  await close();
  return results;
}

const FAILED = "TypeError: Failed to fetch";
const preflighted = { method: "PUT", body: "{}", headers: { "content-type": "application/json", "x-api-key": "secret-of-acme" } };

for (const [name, base] of [["HTTP/1.1", () => api], ["HTTP/2", () => apiHttp2]]) {
  test(`${name}: an allowed page reads simple and preflighted requests`, async () => {
    const [simple, put, over2] = await calls(site.allowed, [`${base()}/items`], [`${base()}/items`, preflighted], [`${base()}/http2`, preflighted]);
    assert.deepEqual([simple.status, simple.body], [200, '{"method":"GET","path":"/items"}']);
    assert.deepEqual([put.status, put.body], [200, '{"method":"PUT","path":"/items"}']);
    assert.deepEqual([over2.status, over2.body], [200, '{"method":"PUT","path":"/http2"}']);
    // The gateway has answered the preflight requests.
    assert.deepEqual(seen.map(({ method }) => method), ["GET", "PUT", "PUT"]);
  });

  test(`${name}: a page of another origin reads nothing, and sends only simple requests`, async () => {
    const results = await calls(site.other, [`${base()}/items`], [`${base()}/items`, preflighted], [`${base()}/none`], [`${base()}/limits`]);
    assert.deepEqual(results, Array(4).fill(FAILED));
    assert.deepEqual(seen.map(({ method, path }) => `${method} ${path}`), ["GET /items", "GET /none"]);
  });

  test(`${name}: refusals and failures can be read`, async () => {
    const guess = { headers: { "x-api-key": "guess" } };
    const [first, limited, unknown, absent, dead] = await calls(
      site.allowed, [`${base()}/limited/a`, preflighted], [`${base()}/limited/a`, preflighted], [`${base()}/items`, guess],
      [`${base()}/items`, { method: "DELETE" }], [`${base()}/dead`]);
    assert.deepEqual([first.status, first.remaining], [200, "0"]);
    assert.equal(limited.status, 429);
    assert.ok(Number(limited.retryAfter) > 86_000, limited.retryAfter);
    assert.equal(JSON.parse(limited.body)["violated-policies"][0], "once");
    assert.deepEqual([unknown.status, absent.status, dead.status], [401, 404, 502]);
    assert.match(unknown.body, /The API key in the header X-Api-Key is unknown\./);
  });

  test(`${name}: a page shows the limits of its client`, async () => {
    const [own] = await calls(site.allowed, [`${base()}/limits`, { headers: { "x-api-key": "secret-of-acme" } }]);
    assert.equal(own.status, 200);
    assert.equal(JSON.parse(own.body).rules[0].name, "once");
  });

  test(`${name}: routes have settings of their own`, async () => {
    const [any, credentials, off] = await calls(
      site.other, [`${base()}/any`], [`${base()}/any`, { credentials: "include" }], [`${base()}/off`]);
    assert.equal(any.status, 200);
    assert.deepEqual([credentials, off], [FAILED, FAILED]);
  });

  test(`${name}: the outcome of a gRPC-Web call can be read`, async () => {
    const call = { method: "POST", body: "x", headers: { "content-type": "application/grpc-web+proto", "x-grpc-web": "1", "x-api-key": "secret-of-acme" } };
    await calls(site.allowed, [`${base()}/limited/b`, call]);
    const [refused] = await calls(site.allowed, [`${base()}/limited/b`, call]);
    assert.deepEqual([refused.status, refused.grpc], [200, "8"]);
  });
}

test("credentials are sent and read", async () => {
  const include = { credentials: "include" };
  const [login, after] = await calls(site.allowed, [`${api}/login`, include], [`${api}/items`, { ...preflighted, ...include }]);
  assert.deepEqual([login.status, after.status], [200, 200]);
  assert.deepEqual(seen.map(({ cookie }) => cookie), [undefined, "session=1"]);
});
