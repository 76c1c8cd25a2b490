// Node's HTTP/2 server: `http2_server.mjs [CERTIFICATE KEY]`, in clear by prior knowledge without arguments.
//
// Prints `listening on PORT`, then `session N` per connection and `request METHOD PATH` per request. Answers with
// what it received as JSON; `/trailers` with trailers too, `/large` with a megabyte, `/page` with a megabyte of HTML,
// `/empty` with an empty page, `/cors` with CORS headers for all origins, `/parts` with a part, and with another one after a
// request for `/release`; `/goaway` closes the connection after the answer.

import { readFileSync } from "node:fs";
import http2 from "node:http2";

const [certificate, key] = process.argv.slice(2);
const server = certificate
  ? http2.createSecureServer({ cert: readFileSync(certificate), key: readFileSync(key), allowHTTP1: true })
  : http2.createServer();

let sessions = 0;
let release = () => {};
server.on("session", () => console.log(`session ${++sessions}`));

server.on("request", async (request, response) => {
  console.log(`request ${request.method} ${request.url}`);
  const body = [];
  try {
    for await (const chunk of request) body.push(chunk);
  } catch {
    return; // The stream was reset.
  }
  const text = Buffer.concat(body);
  const seen = {
    version: request.httpVersion, method: request.method, path: request.url, headers: request.headers,
    length: text.length, body: text.subarray(0, 64).toString("latin1"), trailers: request.trailers,
  };
  if (request.url.startsWith("/large")) return response.end("x".repeat(1_000_000));
  if (["/page", "/empty", "/parts"].includes(request.url)) response.setHeader("content-type", "text/html");
  if (request.url === "/page") return response.end("x".repeat(1_000_000));
  if (request.url === "/empty") return response.end();
  if (request.url === "/parts") {
    response.write("first");
    release = () => response.end(" second");
    return;
  }
  if (request.url === "/release") release();
  response.setHeader("content-type", "application/json");
  if (request.url.startsWith("/cors")) {
    response.setHeader("access-control-allow-origin", "*");
    response.setHeader("access-control-max-age", "5");
    response.setHeader("vary", "accept-encoding");
  }
  if (request.url.startsWith("/trailers")) {
    response.setHeader("trailer", "x-sum");
    response.addTrailers({ "x-sum": String(text.length) });
  }
  response.end(JSON.stringify(seen));
  if (request.url.startsWith("/goaway")) request.stream?.session.close();
});

server.listen(0, "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
