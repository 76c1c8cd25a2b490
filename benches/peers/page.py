"""Writes docs/benchmarks.md (medians) and docs/benchmarks/tables.md (goals, and all columns), between markers."""

import subprocess
from datetime import date
from pathlib import Path

import provenance

from .exactness import Exactness
from .gateways import Gateway, Store
from .goals import GOALS
from .idle import table as idle_table
from .jobs import JOBS, Job
from .plots import FOLDER, file_of
from .processes import which
from .results import COLUMNS, Column, Results, Row
from .spread import Verdict

PAGE = Path("docs/benchmarks.md")
TABLES = FOLDER / "tables.md"

# Columns of the table of medians, by how the names of gateways begin. Builds of tollgate with PGO have their own.
PROGRAMS = ["bare Pingora", "tollgate", "tollgate, PGO", "nginx", "HAProxy", "Envoy", "Traefik", "Pingap"]


def versions() -> list[str]:
    """Versions of the other gateways and of Redis, as they report them."""
    return [
        first_line(which("nginx"), "-v").replace("nginx version: ", ""),
        " ".join(first_line(which("haproxy"), "-v").split()[:3]),
        "Envoy " + first_line(".deps/peers/bin/envoy", "--version").split("/")[-4],
        "Traefik " + first_line(".deps/peers/bin/traefik", "version").split()[-1],
        "Redis " + first_line(which("redis-server"), "--version").split()[2].strip("v="),
    ]


def head(command: str, rounds: int, seconds: float, versions: str) -> str:
    return (
        f"`{command}`, {date.today()}, {provenance.line()}. {versions}. Medians over rounds ({rounds}) of"
        f" {seconds:g} s; in brackets the least and the most.\n"
    )


def goals(results: Results) -> str:
    lines = [line for goal in GOALS if (line := goal.line(results))]
    titles = "| what must hold | wanted | measured | |"
    return "\n" + table(titles, "| --- | --- | ---: | --- |", lines) if lines else ""


def counts(results: Results) -> str:
    """How many goals hold, in a sentence."""
    found = [goal.verdict(results) for goal in GOALS]
    hold, fail, noise = (found.count(verdict) for verdict in (Verdict.HOLDS, Verdict.FAILS, Verdict.NOISE))
    return f"\n[Goals](benchmarks/tables.md): {hold} hold, {fail} do not hold, {noise} are within the noise.\n"


def medians(results: Results) -> str:
    """Requests per second and CPU of all jobs, without their spreads."""
    lines = []
    for job in JOBS:
        if rows := results.rows.get(job.title):
            stores = dict.fromkeys(gateway.store for gateway in job.gateways)
            lines += [line_of_medians(job, store, rows, len(stores) > 1) for store in stores]
    titles = [title for title in PROGRAMS if any(title in line for line in lines)]
    cells = [[line.get(title, "") for title in ["job", *titles]] for line in lines]
    texts = [f"| {' | '.join(line)} |" for line in cells]
    heads = "".join(f" {title} |" for title in titles)
    return "\n" + table(f"| requests/s, CPU in µs |{heads}", f"| --- |{' ---: |' * len(titles)}", texts)


def line_of_medians(job: Job, store: Store, rows: dict[str, Row], names_store: bool) -> dict[str, str]:
    """The cells of a job with one store, by the column's title."""
    line = {"job": job.title + (f" ({store.value})" if names_store else "")}
    for gateway in [job.baseline, *job.gateways]:
        if gateway.name in rows and (gateway is job.baseline or gateway.store is store):
            line.setdefault(program_of(gateway), short_cell(rows[gateway.name]))
    return line


def program_of(gateway: Gateway) -> str:
    name = next(title for title in PROGRAMS if gateway.name.startswith(title))
    return f"{name}, PGO" if gateway.name.endswith(", PGO") else name


def short_cell(row: Row) -> str:
    return f"{row.spreads['requests_per_second'].median:,.0f}; {row.spreads['cpu_us'].median:,.1f}"


def job(title: str, rows: dict[str, Row]) -> str:
    """The table of one job. Columns of Redis are left out if it is not used."""
    uses_redis = any(row.spreads["redis_cpu_us"].median > 0 for row in rows.values())
    redis = {"redis_cpu_us", "both_cpu_us", "redis_calls"}
    columns = [column for column in COLUMNS if uses_redis or column.name not in redis]
    titles = "".join(f" {column.title} |" for column in columns)
    lines = []
    for gateway, row in rows.items():
        cells = "".join(f" {cell(row, column)} |" for column in columns)
        lines.append(f"| {gateway} |{cells}")
    return table(f"| gateway |{titles}", f"| --- |{' ---: |' * len(columns)}", lines)


def cell(row: Row, column: Column) -> str:
    spread, digits = row.spreads[column.name], column.digits
    if column.name in ("redis_cpu_us", "redis_calls") and spread.median == 0:
        return ""
    text = f"{spread.median:,.{digits}f} ({spread.low:,.{digits}f} to {spread.high:,.{digits}f})"
    if column.has_ratio:
        text += f" ×{row.ratios[column.name].median:.2f}"
    return text


def exactness(found: list[Exactness]) -> str:
    lines = [f"| {one.gateway} | {', '.join(one.passed)} |" for one in found]
    return table("| gateway | passed |", "| --- | --- |", lines)


def table(titles: str, rule: str, lines: list[str]) -> str:
    return "\n".join([titles, rule, *lines]) + "\n"


def summary(results: Results, head: str) -> str:
    """What docs/benchmarks.md shows of a section."""
    parts = [head]
    if results.rows:
        parts += [medians(results), counts(results)]
    if results.exactness:
        text = "Burst 10, 10/s, 64 connections of one client, 3 s: how many passed of how many may."
        parts.append(f"\n{text}\n\n{exactness(results.exactness)}")
    if results.crowd_mb is not None:
        parts.append(f"\nA million clients, tollgate with one limit per key: {results.crowd_mb:.0f} MB resident.\n")
    if results.idle:
        parts.append("\n" + idle_table(results.idle))
    return "".join(parts)


def details(results: Results, head: str) -> str:
    """The section of docs/benchmarks/tables.md."""
    parts = [head, goals(results), "\nAfter ×: the ratio to the first gateway of the table, measured at the same time.\n"]
    for title, rows in results.rows.items():
        plot = f"![{title}]({file_of(title).name})"
        parts.append(f"\n### {title}\n\n{plot}\n\n{job(title, rows)}")
    return "".join(parts)


def write(section: str, results: Results, head: str) -> None:
    write_part(PAGE, section, summary(results, head))
    if results.rows:
        write_part(TABLES, section, details(results, head))


def write_part(page: Path, section: str, text: str) -> None:
    """Replaces the text between the markers of the section."""
    begin, end = f"<!-- {section}: begin -->\n", f"<!-- {section}: end -->\n"
    before, rest = page.read_text().split(begin)
    after = rest.split(end)[1]
    page.write_text(before + begin + text + end + after)


def first_line(*command: str) -> str:
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    return (output.stdout or output.stderr).strip().splitlines()[0]
