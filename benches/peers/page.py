"""Writes the tables in docs/benchmarks.md, between markers."""

import os
import platform
import subprocess
from datetime import date
from pathlib import Path

from .exactness import Exactness
from .goals import GOALS
from .idle import table as idle_table
from .plots import file_of
from .results import COLUMNS, Column, Results, Row

PAGE = Path("docs/benchmarks.md")


def head(command: str, rounds: int, seconds: float, versions: str) -> str:
    return (
        f"`{command}`, {date.today()}, {os.cpu_count()} cores ({processor()}), Linux"
        f" {platform.release()}. {versions}. Medians over rounds ({rounds}) of {seconds:g} s; in"
        " brackets the least and the most; after ×, the ratio to the first gateway of the table, measured at the same time.\n"
    )


def goals(results: Results) -> str:
    lines = [line for goal in GOALS if (line := goal.line(results))]
    titles = "| what must hold | wanted | measured | |"
    return "\n" + table(titles, "| --- | --- | ---: | --- |", lines) if lines else ""


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


def whole(results: Results, head: str) -> str:
    parts = [head, goals(results)]
    for title, rows in results.rows.items():
        plot = f"![{title}]({file_of(title).relative_to('docs')})"
        parts.append(f"\n### {title}\n\n{plot}\n\n{job(title, rows)}")
    if results.exactness:
        text = "Burst 10, 10/s, 64 connections of one client, 3 s: how many passed of how many may."
        parts.append(f"\n### Exactness beside speed\n\n{text}\n\n{exactness(results.exactness)}")
    if results.crowd_mb is not None:
        text = f"tollgate, one limit per key: {results.crowd_mb:.0f} MB resident."
        parts.append(f"\n### A million clients in memory\n\n{text}\n")
    if results.idle:
        parts.append("\n" + idle_table(results.idle))
    return "".join(parts)


def write(section: str, text: str) -> None:
    """Replaces the text between the markers of the section."""
    begin, end = f"<!-- {section}: begin -->\n", f"<!-- {section}: end -->\n"
    page = PAGE.read_text()
    before, rest = page.split(begin)
    after = rest.split(end)[1]
    PAGE.write_text(before + begin + text + end + after)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line for line in lines if line.startswith("model name")), ": unknown")
    return model.split(":")[1].strip()


def first_line(*command: str) -> str:
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    return (output.stdout or output.stderr).strip().splitlines()[0]
