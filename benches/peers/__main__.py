"""Compares tollgate with other gateways: `make bench`, from the root of the source."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import provenance

from . import page, plots
from .exactness import crowd_mb, exactness
from .gateways import Gateway, pingap
from .idle import idle
from .jobs import JOBS, SECTIONS, Job
from .measure import Bench, Pair
from .processes import Failure, progress, stop_on_sigterm
from .results import Results, Row, committed

# Attempts per measurement: one failure on a busy machine must not lose the other results.
TRIES = 3

# Defaults of `make bench`.
ROUNDS, SECONDS = 5, 3

# Jobs besides the numbered ones.
EXACTNESS, MEMORY = "exactness", "memory"

# The jobs that have a section of the page for themselves.
OWN_SECTIONS = ("9", MEMORY)


def main() -> None:
    wanted = arguments()
    stop_on_sigterm()
    say = progress()
    results = Results()
    with tempfile.TemporaryDirectory(prefix="tollgate-bench-") as folder:
        bench = Bench(Path(folder), wanted.seconds)
        try:
            measure(bench, wanted, results, say)
        finally:
            bench.stop()
    head = page.head(command(wanted), wanted.rounds, wanted.seconds, versions())
    for _, part in sections(results):
        print("", page.summary(part, head), page.details(part, head), sep="\n")
    print_changes(results)
    if wanted.write:
        for name, part in sections(results):
            page.write(name, part, head)
        results.write()
        for title, rows in results.rows.items():
            plots.draw(title, rows)
        say(f"written to {page.PAGE} and {page.TABLES}")


def arguments() -> argparse.Namespace:
    names = [*dict.fromkeys(job.number for job in JOBS), EXACTNESS, MEMORY]
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument("--job", choices=names, help="only this one")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    about = "duration of each measurement"
    parser.add_argument("--seconds", type=float, default=SECONDS, help=about)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    wanted = parser.parse_args()
    if wanted.write and wanted.job not in (None, *OWN_SECTIONS):
        names = " or ".join(OWN_SECTIONS)
        parser.error(f"only a run of all jobs, or of job {names}, can be written")
    if wanted.write:
        provenance.require_clean()
    return wanted


def command(wanted: argparse.Namespace) -> str:
    """The command that repeats the run."""
    if (wanted.rounds, wanted.seconds, wanted.job) == (ROUNDS, SECONDS, None):
        return "make bench"
    options = f"--rounds {wanted.rounds} --seconds {wanted.seconds:g}"
    if wanted.job:
        options = f"--job {wanted.job} {options}"
    return f"PYTHONPATH=benches $(scripts/peers) -m peers --write {options}"


def measure(bench: Bench, wanted: argparse.Namespace, results: Results, say) -> None:
    for job in JOBS:
        if wanted.job in (None, job.number):
            say(f"job {job.number}: {job.title}")
            results.rows[job.title] = rows_of(bench, job, wanted.rounds, say)
    if wanted.job in (None, EXACTNESS):
        say("exactness: burst 10, 10/s, 64 connections, 3 s")
        results.exactness = exactness(bench, min(wanted.rounds, 3), say)
    if wanted.job in (None, MEMORY):
        say("memory: idle connections")
        results.idle = idle(bench, say)
    # `memory` alone writes only the section of idle connections.
    if wanted.job is None or (wanted.job == MEMORY and not wanted.write):
        say("memory: a million clients")
        results.crowd_mb = crowd_mb(bench, say)


def sections(results: Results) -> Iterator[tuple[str, Results]]:
    """The sections of the page that the run has measured."""
    for name, titles in SECTIONS.items():
        part = results.of_titles(titles)
        if name == "peers":
            part.exactness, part.crowd_mb = results.exactness, results.crowd_mb
        if part != Results():
            yield name, part
    if results.idle:
        yield "connections", Results(idle=results.idle)


def rows_of(bench: Bench, job: Job, rounds: int, say) -> dict[str, Row]:
    """Measures the gateways of a job in turn, each together with the baseline."""
    if job.at_half_load:
        job = bench.half_load(job)
    pairs: dict[str, list[Pair]] = {gateway.name: [] for gateway in job.gateways}
    for turn in range(rounds):
        for gateway in job.gateways:
            pair = tried(bench, job, gateway, turn, say)
            pairs[gateway.name].append(pair)
            own, base = pair.own, pair.baseline
            say(
                f"{turn + 1}/{rounds} {gateway.name}: {own.requests_per_second:,.0f} requests/s,"
                f" {own.cpu_us:.1f} µs"
                f" ({job.baseline.name} {base.requests_per_second:,.0f}, {base.cpu_us:.1f})"
            )
    baselines = [pair.baseline for of_one in pairs.values() for pair in of_one]
    rows = {job.baseline.name: Row.of([Pair(own, own) for own in baselines])}
    return rows | {name: Row.of(of_one) for name, of_one in pairs.items()}


def tried(bench: Bench, job: Job, gateway: Gateway, turn: int, say) -> Pair:
    for _ in range(TRIES - 1):
        try:
            return bench.pair(job, gateway, baseline_first=turn % 2 == 0)
        except Failure as failure:
            say(f"retrying: {failure}")
    return bench.pair(job, gateway, baseline_first=turn % 2 == 0)


def print_changes(results: Results) -> None:
    before = committed()
    if before:
        changes = list(results.outside(before))
        print(f"\n{len(changes)} figures outside the spread of what is committed:")
        print("".join(f"  {change}\n" for change in changes))


def versions() -> str:
    """Versions of all programs, as they report them."""
    lines = page.versions()
    if pingap.IS_BUILT:
        lines.insert(-1, "Pingap " + page.first_line(pingap.PROGRAM, "--version").split()[1])
    return ", ".join(lines)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
