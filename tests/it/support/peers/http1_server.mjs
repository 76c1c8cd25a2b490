// Node's HTTP/1.1 server. Chooses a port and prints it.
//
// Prints `seen METHOD TARGET` for each request, and `fault …` for bytes that are not a request.
import http from "node:http";

const server = http.createServer({ maxHeaderSize: 1 << 20, keepAliveTimeout: 75_000 }, (request, response) => {
  console.log(`seen ${request.method} ${request.url}`);
  request.resume();
  request.on("error", () => {});
  request.on("end", () => {
    response.writeHead(200, { "Content-Length": 0, "X-Upstream": "yes" });
    response.end();
  });
});
server.on("clientError", (error, socket) => {
  // The gateway resets a request that its client does not complete.
  if (error.code.startsWith("HPE_") && error.code !== "HPE_INVALID_EOF_STATE") console.log(`fault ${error.code}`);
  socket.destroy();
});
server.listen(0, "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
