"""Tests HTTP/2 of the gateway with httpwg, a suite for RFC 9113: in clear, and over TLS through HAProxy,
because the suite has no TLS. Fails if other tests fail than http2_known.txt lists.

Usage: http2.py HTTPWG PROGRAM.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import free_port, gateway, start

KNOWN = Path(__file__).with_name("http2_known.txt")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RESULT = re.compile(r"Test (passed|failed): RFC 9113 :: (.*)")
# A test that waits for nothing fails after this time.
FRAME_TIMEOUT_MS = 3_000


def main() -> None:
    httpwg, program = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tollgate-http2-") as name:
        folder = Path(name)
        tls, clear, _ = gateway(program, folder, "demo")
        results = {"in clear": run(httpwg, clear), "over TLS": run(httpwg, bridge(folder, tls))}
    lines = KNOWN.read_text().splitlines()
    # Some tests depend on what the server reads first, so that a listed one may also pass.
    known = {line.split("\t")[0] for line in lines if not line.startswith("#")}
    wrong = 0
    for title, (passed, failed) in results.items():
        print(f"{title}: {len(passed)} of {len(passed) + len(failed)} tests passed")
        for test, reason in sorted(failed.items()):
            print(f"  {'known: ' if test in known else ''}{test}: {reason}")
        wrong += len(failed.keys() - known)
    print(f"{wrong} failures that {KNOWN.name} does not list")
    sys.exit(1 if wrong else 0)


def run(httpwg: str, port: int) -> tuple[set[str], dict[str, str]]:
    """The tests that passed, and those that failed with their reason."""
    # The suite wants to start the server itself; this one does nothing.
    command = [httpwg, "--frame-timeout", str(FRAME_TIMEOUT_MS), "-a", f"127.0.0.1:{port}"]
    command += ["--", "sleep", "600"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    lines = COLOUR.sub("", done.stdout + done.stderr).splitlines()
    passed, failed = set(), {}
    for index, line in enumerate(lines):
        if found := RESULT.search(line):
            kind, test = found.groups()
            if kind == "passed":
                passed.add(test)
            else:
                after = (later.strip() for later in lines[index + 1 : index + 4])
                failed[test] = next((text for text in after if text.startswith("0: ")), "")[3:]
    if not passed:
        raise SystemExit(f"error: httpwg ran no tests\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return passed, failed


def bridge(folder: Path, port: int) -> int:
    """A port of HAProxy that passes bytes to `port` over TLS with ALPN `h2`."""
    own = free_port()
    file = folder / "bridge.cfg"
    file.write_text(
        f"""defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen bridge
    bind 127.0.0.1:{own}
    server gateway 127.0.0.1:{port} ssl verify none alpn h2
"""
    )
    start(["/usr/sbin/haproxy", "-db", "-f", file], own, folder / "bridge.log")
    return own


if __name__ == "__main__":
    main()
