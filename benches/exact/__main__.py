"""Exactness of tollgate and other gateways under the same traffic: `make bench-exactness`, from the root of the source."""

import argparse
import sys

import provenance
from peers import page as peers_page
from peers.processes import Failure, progress, stop_on_sigterm

from . import page, plots
from .cases import CASES, Case
from .gateways import Contender, envoy, haproxy, nginx, tollgate, traefik
from .run import run

PROGRAM = "target/debug/tollgate"


def main() -> None:
    wanted = arguments()
    stop_on_sigterm()
    say = progress()
    chosen = [one for one in contenders(wanted.tollgate) if wanted.only_gateway.lower() in one.name.lower()]
    for case in CASES:
        if wanted.only_case in (None, case.name):
            measure(case, chosen, wanted.write, say)
    if wanted.write:
        page.write_versions(versions(wanted.tollgate))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="exact", description=__doc__)
    parser.add_argument("--only-case", choices=[case.name for case in CASES])
    parser.add_argument("--only-gateway", default="", help="those with this in their name")
    parser.add_argument("--write", action="store_true", help=f"write {page.PAGE} and its pictures")
    parser.add_argument("--tollgate", default=PROGRAM, help="the program; need not be optimised")
    wanted = parser.parse_args()
    if wanted.write and wanted.only_gateway:
        parser.error("only a run of all gateways can be written")
    if wanted.write:
        provenance.require_clean()
    return wanted


def contenders(program: str) -> list[Contender]:
    others = [nginx, traefik, haproxy, envoy]
    return [*tollgate.contenders(program), *(one for module in others for one in module.CONTENDERS)]


def measure(case: Case, chosen: list[Contender], writes: bool, say) -> None:
    say(f"{case.name}: {case.title}")
    results: list[tuple[Contender, page.Result]] = []
    for contender in chosen:
        result: page.Result = case.reason(contender) or run(case, contender)
        results.append((contender, result))
        say(page.line(contender, result))
    if writes:
        page.write(case, page.section(case, results))
        plots.draw(case, results)


def versions(program: str) -> str:
    return ", ".join([peers_page.first_line(program, "--version"), *peers_page.versions()])


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
