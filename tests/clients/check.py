"""Sends requests with the client libraries of other projects through a gateway, and compares what they do with the table
in docs/responses.md: `python3 tests/clients/check.py TOLLGATE PYTHON FOLDER [--write]`, by `make test-clients`.

Each library sends three requests one after the other, of which the bucket holds one. A library that waits for
`Retry-After` is refused twice, and its caller sees three times 200.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = Path("docs/responses.md")
BEGIN, END = "<!-- clients: begin -->\n", "<!-- clients: end -->\n"
CALLS = 3
FILE = """
[server]
listen = ["127.0.0.1:{port}"]
admin = "127.0.0.1:{admin}"
[access_log]
output = "{log}"
fields = ["status", "header:x-client"]
[headers]
style = "{style}"
reset = "{reset}"
[plans.free]
[upstreams.api]
servers = ["demo"]
[routes.all]
[rules.all]
per = ["header:x-client"]
rate = "1/2s"
burst = 1
"""


@dataclass
class Client:
    """What a library did: what its caller saw, and what the gateway answered."""

    name: str
    seen: list
    answered: Counter

    def row(self, version: str) -> str:
        waits = self.seen == [200] * CALLS and self.answered[429] == CALLS - 1
        retries = sum(self.answered.values()) > CALLS
        does = "waits for `Retry-After`" if waits else "retries, without waiting for it" if retries else "does not retry"
        return f"| {self.name} | {version} | {does} | {', '.join(map(str, self.seen))} | {self.answered[429]} |"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Gateway:
    """A gateway with these headers, until the end of the block."""

    def __init__(self, program: str, style: str = "both", reset: str = "epoch"):
        self.folder = tempfile.TemporaryDirectory(prefix="tollgate-clients-")
        self.log = Path(self.folder.name) / "access.log"
        port, self.admin = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}/"
        file = Path(self.folder.name) / "gateway.toml"
        file.write_text(FILE.format(port=port, admin=self.admin, log=self.log, style=style, reset=reset))
        self.process = subprocess.Popen([program, "run", str(file)], stderr=subprocess.DEVNULL)

    def __enter__(self) -> "Gateway":
        deadline = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/ready", timeout=1):
                    return self
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    sys.exit("error: the gateway does not start")
                time.sleep(0.05)

    def __exit__(self, *_) -> None:
        self.stop()
        self.folder.cleanup()

    def stop(self) -> None:
        """Ends it, so that the access log is complete."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    def answered(self) -> dict[str, Counter]:
        """Number of answers by client and status."""
        found: dict[str, Counter] = {}
        for line in map(json.loads, self.log.read_text().splitlines()):
            found.setdefault(line["header:x-client"], Counter())[line["status"]] += 1
        return found


def run(command: list[str], folder: Path) -> subprocess.Popen:
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen) -> dict:
    output, _ = process.communicate(timeout=120)
    if process.returncode != 0:
        sys.exit(f"error: {process.args} failed")
    return json.loads(output)


def clients(program: str, python: str, folder: Path) -> list[Client]:
    with Gateway(program) as gateway:
        started = [
            run([python, str((HERE / "clients.py").resolve()), gateway.url, str(CALLS)], folder),
            run(["node", "clients.mjs", gateway.url, str(CALLS)], folder),
        ]
        seen = {name: statuses for process in started for name, statuses in result(process).items()}
        gateway.stop()
        answered = gateway.answered()
    return [Client(name, statuses, answered[name]) for name, statuses in seen.items()]


def parsed(program: str, folder: Path, style: str, reset: str) -> str:
    """What ratelimit-header-parser reads."""
    with Gateway(program, style, reset) as gateway:
        found = result(run(["node", "parser.mjs", gateway.url], folder))
    is_read = (found["limit"], found["remaining"]) == (1, 0) and abs((found["reset"] or 0) - time.time()) < 60
    return "reads limit, remaining and reset" if is_read else "reads nothing" if not found["limit"] else str(found)


def versions(python: str, folder: Path) -> dict[str, str]:
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, check=True)
    found = {package["name"]: package["version"] for package in json.loads(listed.stdout)}
    found |= json.loads((folder / "package.json").read_text())["dependencies"]
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return found | {
        "fetch": f"Node.js {node.strip('v').split('.')[0]}",
        "requests with urllib3's Retry": f"{found['requests']}, {found['urllib3']}",
        "undici RetryAgent": found["undici"],
    }


def table(program: str, python: str, folder: Path) -> str:
    known = versions(python, folder)
    lines = [
        "| library | version | on a 429, with its defaults | its caller sees | refusals |",
        "| --- | --- | --- | --- | ---: |",
    ]
    lines += [client.row(known[client.name]) for client in clients(program, python, folder)]
    lines += ["", "| ratelimit-header-parser " + known["ratelimit-header-parser"] + " | |", "| --- | --- |"]
    for style, reset in [("both", "epoch"), ("draft", "epoch"), ("x", "epoch"), ("x", "delta")]:
        shown = f"`style = \"{style}\"`" + (f", `reset = \"{reset}\"`" if style == "x" else "")
        lines.append(f"| {shown} | {parsed(program, folder, style, reset)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    program, python, folder = sys.argv[1:4]
    found = table(program, python, Path(folder))
    print(found)
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    written, after = rest.split(END)
    if "--write" in sys.argv:
        PAGE.write_text(before + BEGIN + found + END + after)
    elif written != found:
        sys.exit(f"error: {PAGE} says something else; `make test-clients WRITE=1` writes it")


if __name__ == "__main__":
    main()
