"""The test suite of the requests library against httpbin: directly, and through the gateway. Both over
HTTPS with the same certificate. Fails if a test has another result through the gateway.

Usage: requests_suite.py PROGRAM SUITE, in the environment that `scripts/test-conformance` makes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from servers import free_port, gateway, start

# Results that differ by intent: the gateway removes Proxy-Authorization, which is for proxies.
INTENDED = {"tests.test_requests.TestRequests.test_proxy_authorization_preserved_on_request"}

GUNICORN = [sys.executable, "-m", "gunicorn", "--threads", "16", "--log-level", "warning"]


def main() -> None:
    program, suite = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tollgate-requests-") as name:
        folder = Path(name)
        clear, tls = free_port(), free_port()
        httpbin = [*GUNICORN, "httpbin:app", "--bind"]
        start([*httpbin, f"127.0.0.1:{clear}"], clear, folder / "httpbin.log")
        port, _, cert = gateway(program, folder, f"127.0.0.1:{clear}")
        files = ["--certfile", cert, "--keyfile", cert.with_name("key.pem")]
        start([*httpbin, f"127.0.0.1:{tls}", *files], tls, folder / "httpbin-tls.log")
        direct = results(suite, tls, cert, folder / "direct.xml")
        through = results(suite, port, cert, folder / "through.xml")
    for title, found in (("directly", direct), ("through the gateway", through)):
        counts = [f"{list(found.values()).count(kind)} {kind}" for kind in sorted({*found.values()})]
        print(f"{title}: {len(found)} tests: {', '.join(counts)}")
    others = {test for test in direct.keys() | through if direct.get(test) != through.get(test)}
    for test in sorted(others):
        note = " (intended)" if test in INTENDED else ""
        print(f"{test}: {direct.get(test)} directly, {through.get(test)} through the gateway{note}")
    others -= INTENDED
    print(f"{len(others)} other tests with another result through the gateway")
    sys.exit(1 if others or not direct else 0)


def results(suite: str, port: int, cert: Path, report: Path) -> dict[str, str]:
    """The result of each test."""
    # Certificates and proxies of the machine do not apply to the test.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_CA_BUNDLE") and not name.lower().endswith("_proxy")
    }
    environment = kept | {
        "HTTPBIN": f"https://localhost:{port}",
        "CERTIFICATE": str(cert),
        "PYTHONPATH": os.pathsep.join([f"{suite}/src", str(Path(__file__).parent)]),
    }
    plugin = ["-p", "httpbin_of_gateway", "-p", "no:cacheprovider"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, f"--junitxml={report}", "tests"],
        cwd=suite,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return {
        f"{case.get('classname')}.{case.get('name')}": result(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def result(case: ElementTree.Element) -> str:
    kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    return kinds[0] if kinds else "passed"


if __name__ == "__main__":
    main()
