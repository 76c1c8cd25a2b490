"""Scans a TLS listener of the gateway with sslscan and testssl. Fails if testssl finds anything above low,
or sslscan a version before TLS 1.2.

Usage: tls_scan.py PROGRAM.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import gateway

# Findings about the self-signed certificate of the test, and about the headers of the upstream's response.
NOT_OF_THE_LISTENER = ("cert_", "OCSP_", "DNS_CAA", "overall_grade", "grade_cap", "security_headers")
HARMLESS = {"OK", "INFO", "LOW", "DEBUG"}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tollgate-scan-") as name:
        folder = Path(name)
        port, _, _ = gateway(sys.argv[1], folder, "demo")
        bad = sslscan(port) + testssl(port, folder / "findings.json")
    print(f"{len(bad)} findings above low", *bad, sep="\n")
    sys.exit(1 if bad else 0)


def sslscan(port: int) -> list[str]:
    command = ["sslscan", "--no-colour", f"127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(done.stdout)
    old = re.findall(r"^(?:SSLv\d|TLSv1\.[01])\s+enabled", done.stdout, re.MULTILINE)
    weak = re.findall(r"^\w+ +TLSv\S+ +\d+ bits +\S*(?:CBC|RC4|3DES)\S*", done.stdout, re.MULTILINE)
    return [f"sslscan: {line}" for line in old + weak]


def testssl(port: int, file: Path) -> list[str]:
    command = ["testssl", "--quiet", "--color", "0", "--warnings", "batch", "--ip", "one"]
    command += ["--jsonfile", str(file), f"localhost:{port}"]
    print(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    found = json.loads(file.read_text())
    if not found:
        raise SystemExit("error: testssl found nothing at all")
    return [
        f"testssl: {one['severity']} {one['id']}: {one['finding']}"
        for one in found
        if one["severity"] not in HARMLESS and not one["id"].startswith(NOT_OF_THE_LISTENER)
    ]


if __name__ == "__main__":
    main()
