// Fixtures of the browser tests: a gateway with Redis, clients, and Chromium.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createServer } from "node:net";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TARGET = process.env.CARGO_TARGET_DIR ?? join(ROOT, "target");
// Folder of the packages that `make test-browser` installs, outside of the source.
const require = createRequire(join(TARGET, "browser", "package.json"));
export const { chromium } = require("playwright-core");
export const AXE = require.resolve("axe-core/axe.min.js");

const PROGRAM = process.env.TOLLGATE ?? join(TARGET, "debug", "tollgate");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** Disables Chromium's own requests at the start. */
const QUIET = ["--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"];

/** Timeout, long enough for a busy machine. */
export const TIMEOUT_MS = 20_000;

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `check` returns a truthy value, and returns it. */
export async function eventually(what, check) {
  const until = Date.now() + TIMEOUT_MS;
  let last;
  while (Date.now() < until) {
    try {
      last = await check();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    await pause(100);
  }
  throw new Error(`waited ${TIMEOUT_MS} ms for ${what}; last: ${last}`);
}

export function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Child processes that run. Those of a failed test, which did not stop them, would keep the run from ending. */
const running = new Set();
after(() => running.forEach((child) => child.kill("SIGKILL")));

/** A child process, stopped by its handle. */
function start(program, args) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (log += text));
  child.on("error", (error) => (log += error));
  running.add(child);
  child.once("close", () => running.delete(child));
  const ended = new Promise((resolve) => child.once("close", resolve));
  return { log: () => log, stop: async () => { child.kill("SIGKILL"); await ended; }, pause: () => child.kill("SIGSTOP"), resume: () => child.kill("SIGCONT") };
}

const keys = { acme: "pro", "big-corp": "enterprise", globex: "pro", initech: "free" };
export const secret = (id) => `secret-of-${id}`;

/** The configuration with other names: `rename(name)` for each plan, key, upstream, route and rule. */
export const renamed = (text, rename) => text
  .replace(/^\[(plans|keys|upstreams|routes|rules)\.([\w-]+)\]/gm, (_, table, name) => `[${table}.${rename(name)}]`)
  .replace(/^plans\.(\w+)/gm, (_, name) => `plans.${rename(name)}`)
  .replace(/^(plan|upstream) = "(\w+)"/gm, (_, member, name) => `${member} = "${rename(name)}"`)
  .replace(/^routes = \["(\w+)"\]/gm, (_, name) => `routes = ["${rename(name)}"]`)
  .replace("[upstreams.", `[clients]\nanonymous_plan = "${rename("free")}"\n[upstreams.`);

/** A configuration with several plans, keys and rules. */
function config(redis, more = "") {
  const tables = Object.entries(keys).map(([id, plan]) =>
    `[keys.${id}]\nsha256 = "${createHash("sha256").update(secret(id)).digest("hex")}"\nplan = "${plan}"\n`);
  return `
[server]
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
threads = 2
trusted_proxies = ["127.0.0.1"]
${more.includes("[redis]") ? "" : `[redis]\nurl = "redis://127.0.0.1:${redis}"\ntimeout = "100ms"\n`}
[plans.free]
[plans.pro]
[plans.enterprise]
${tables.join("\n")}
[upstreams.api]
servers = ["demo"]
[routes.search]
path = "/api/search"
upstream = "api"
cost = 5
[routes.rest]
path = "/*"
upstream = "api"
[rules.per-key]
description = "What a plan buys."
per = ["key"]
plans.free       = { rate = "5/s",   burst = 20 }
plans.pro        = { rate = "20/s",  burst = 60 }
plans.enterprise = { rate = "100/s", burst = 300 }
[rules.per-ip]
description = "Limits each address, for any number of keys."
per = ["ip"]
rate = "40/s"
burst = 120
[rules.search]
description = "Search is dear."
per = ["key", "route"]
routes = ["search"]
rate = "20/s"
burst = 60
[rules.everyone]
description = "What the API can take."
per = []
rate = "5000/s"
burst = 10000
[rules.tighter]
description = "Tried out: would 60 for all be enough?"
per = []
rate = "60/s"
burst = 120
mode = "shadow"
${more}`;
}

/** A Redis at a free port. */
async function startRedis(folder) {
  const port = await freePort();
  const redis = start("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]);
  await eventually("Redis", () => redis.log().includes("Ready to accept connections"));
  return { ...redis, port };
}

/** A gateway and its Redis; with `beside`, another gateway that shares the Redis of that one. */
export async function startGateway({ more = "", change = (text) => text, beside } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-browser-"));
  const redis = beside?.redis ?? await startRedis(folder);
  const file = join(folder, "gateway.toml");
  const text = change(config(redis.port, more));
  writeFileSync(file, text);
  const program = start(PROGRAM, ["run", "-c", file]);
  const found = await eventually("the gateway", () => {
    const gateway = /listening on (http:\S+)/.exec(program.log());
    const admin = /admin port on (http:\S+)/.exec(program.log());
    return gateway && admin && { gateway: gateway[1], admin: admin[1] };
  }).catch((error) => { throw new Error(`${error}\n${program.log()}`); });
  const save = (content) => {
    writeFileSync(`${file}.new`, content);
    renameSync(`${file}.new`, file);
  };
  const stop = async () => {
    await program.stop();
    if (!beside) await redis.stop();
    rmSync(folder, { recursive: true });
  };
  return { ...found, text, save, redis, log: program.log, stop };
}

/** What protrudes from the page, from its card or from its table, as a list of selectors. */
export const overflowing = (page) => page.evaluate(() => {
  const name = (element) => `${element.closest("[id]")?.id} ${element.tagName}.${element.className}: ${element.textContent.slice(0, 40)}`;
  const isShown = (element) => element.checkVisibility() && !element.closest(".hidden, .skip, .uplot, svg");
  const wrong = [];
  for (const element of document.querySelectorAll("body *")) {
    if (!isShown(element)) continue;
    const { left, right } = element.getBoundingClientRect();
    const card = element.parentElement.closest(".card, .tile, header, main")?.getBoundingClientRect();
    if (left < -1 || right > window.innerWidth + 1 || (card && right > card.right + 1)) wrong.push(`outside: ${name(element)}`);
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible" && element.tagName !== "INPUT") wrong.push(`scrolls: ${name(element)}`);
  }
  return wrong;
});

const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });

/** One request; resolves to its status. */
export function send(gateway, path, headers = {}) {
  return new Promise((resolve) => {
    const request = http.get(`${gateway}${path}`, { agent, headers }, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode));
    });
    request.on("error", () => resolve(0));
  });
}

/** Clients that send requests until stopped: `{ key?, ip, path?, perSecond }`. */
export function load(gateway, clients) {
  const timers = clients.map(({ key, ip, path = "/", perSecond }) => {
    const headers = { "x-forwarded-for": ip, ...(key && { "x-api-key": secret(key) }) };
    return setInterval(() => send(gateway, path, headers), 1_000 / perSecond);
  });
  return () => timers.forEach(clearInterval);
}

/** Clients of every kind, some above their limits. */
export const CROWD = [
  { key: "acme", ip: "203.0.113.7", perSecond: 26 },
  { key: "globex", ip: "203.0.113.41", perSecond: 9 },
  { key: "big-corp", ip: "198.51.100.20", perSecond: 30 },
  { key: "initech", ip: "198.51.100.77", perSecond: 8 },
  { key: "globex", ip: "203.0.113.42", path: "/api/search", perSecond: 3 },
  { ip: "192.0.2.14", perSecond: 9 },
  { ip: "192.0.2.15", perSecond: 2 },
  { ip: "192.0.2.99", perSecond: 1 },
];

const PAGE = join(ROOT, "src", "admin", "page");

/** Serves the page from the source, so that a change needs no build. The headers are those of the program. */
async function fromSource(context, address) {
  await context.route((url) => url.origin === new URL(address).origin && /^\/(page\/.*)?$/.test(url.pathname), async (route) => {
    const { pathname } = new URL(route.request().url());
    const file = pathname === "/" ? "index.html" : pathname.replace("/page/", "").replace(/^uplot/, "vendor/uplot");
    const types = { html: "text/html", css: "text/css", js: "text/javascript", svg: "image/svg+xml" };
    const policy = (await fetch(address)).headers.get("content-security-policy");
    const contentType = `${types[file.split(".").at(-1)]}; charset=utf-8`;
    await route.fulfill({ contentType, headers: policy && { "content-security-policy": policy }, body: readFileSync(join(PAGE, file), "utf8") });
  });
}

/** A browser whose pages collect errors. With `SOURCE=1`, the page is that of the source, not of the program. */
export async function startBrowser() {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: QUIET });
  const open = async (address, { prepare, fragment = "", ...options } = {}) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    if (process.env.SOURCE) await fromSource(context, address);
    const page = await context.newPage();
    await prepare?.(page);
    const wrong = [];
    page.on("console", (message) => message.type() === "error" && wrong.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => wrong.push(`error: ${error}`));
    page.on("request", (request) => {
      if (!request.url().startsWith(`${address}/`) && !request.url().startsWith("data:")) wrong.push(`outside: ${request.url()}`);
    });
    await page.goto(`${address}/${fragment}`);
    return { page, wrong, close: () => context.close() };
  };
  return { open, stop: () => browser.close() };
}
