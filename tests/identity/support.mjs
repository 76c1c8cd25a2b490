// A gateway, and servers of keys and tokens, each on a free port of this machine.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const PROGRAM = process.env.TOLLGATE;
const PATIENCE_MS = 20_000;

/** The parts of a configuration that all tests have. */
const BASE = `
[plans.free]
[plans.pro]
[upstreams.api]
servers = ["demo"]
[routes.all]
path = "/*"
upstream = "api"
`;

/** Waits until `get` returns something. */
export async function eventually(what, get) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await get();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not in time: ${what}`);
    await new Promise((resume) => setTimeout(resume, 50));
  }
}

/** A certificate for `localhost`, and the authority that has issued it, in a new folder. */
export async function certificate() {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-identity-"));
  const openssl = (...words) => execFileSync("openssl", words, { cwd: folder, stdio: "ignore" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  openssl("req", "-x509", ...key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2");
  openssl("req", ...key, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=localhost");
  await writeFile(join(folder, "names"), "subjectAltName=DNS:localhost\n");
  openssl("x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "own.pem");
  const [cert, own] = await Promise.all(["own.pem", "own.key"].map((name) => readFile(join(folder, name))));
  return { cert, key: own, ca: join(folder, "ca.pem"), remove: () => rm(folder, { recursive: true }) };
}

/** Starts an HTTP server, with TLS if it has a certificate; `{ url, port, close }`. */
export async function serve(listener, port = 0, own = null) {
  const server = own ? createSecureServer({ cert: own.cert, key: own.key }, listener) : createServer(listener);
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const close = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  };
  const url = own ? "https://localhost" : "http://127.0.0.1";
  return { url: `${url}:${server.address().port}`, port: server.address().port, close };
}

/** Starts a gateway with these tables. */
export async function gateway(tables) {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-identity-"));
  const file = join(folder, "gateway.toml");
  await writeFile(file, `[server]\nlisten = ["127.0.0.1:0"]\nadmin = "127.0.0.1:0"\n${tables}${BASE}`);
  const program = spawn(PROGRAM, ["run", "-c", file], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const addresses = {};
  createInterface({ input: program.stderr }).on("line", (line) => {
    log += `${line}\n`;
    const found = / listening on http:\/\/(\S+)$/.exec(line);
    if (found) addresses.listening = found[1];
  });
  await eventually("the addresses of the gateway", () => addresses.listening || program.exitCode !== null);
  if (program.exitCode !== null) throw new Error(log);
  const stop = async () => {
    program.kill("SIGINT");
    if (program.exitCode === null) await once(program, "exit");
    await rm(folder, { recursive: true });
  };
  /** Status, client and detail of the response to a request with a bearer token. */
  const send = async (token) => {
    const response = await fetch(`http://${addresses.listening}/`, { headers: { authorization: `Bearer ${token}` } });
    const { client, detail } = await response.json();
    return { status: response.status, client, detail };
  };
  return { send, stop, log: () => log };
}
