// Node's HTTP/1.1 server with faults: `faulty_server.mjs [PORT]`.
//
// Prints `control on PORT` and `listening on PORT`. A request `/200`, `/500`, `/slow` or `/refuse` to the control port
// changes its answers: 200, 500, 200 after 500 ms, and no listening socket.
import http from "node:http";

let answers = "200";
const server = http.createServer({ keepAliveTimeout: 75_000 }, (request, response) => {
  request.resume();
  request.on("error", () => {});
  const answer = () => {
    response.writeHead(answers === "500" ? 500 : 200, { "Content-Length": 2 });
    response.end("ok");
  };
  request.on("end", () => (answers === "slow" ? setTimeout(answer, 500) : answer()));
});

let port = Number(process.argv[2] ?? 0);
const listen = (done) => server.listen(port, "127.0.0.1", done);
const control = http.createServer((request, response) => {
  const next = request.url.slice(1);
  const done = () => response.end("done");
  const before = answers;
  answers = next;
  if (next === "refuse") {
    server.close(done);
    server.closeAllConnections();
  } else if (before === "refuse") listen(done);
  else done();
});
control.listen(0, "127.0.0.1", () => {
  console.log(`control on ${control.address().port}`);
  listen(() => {
    port = server.address().port;
    console.log(`listening on ${port}`);
  });
});
