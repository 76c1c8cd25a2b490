"""Writes docs/exactness.md: a section for each case, between markers. Its title is on the page already."""

from datetime import date
from pathlib import Path

import provenance
from peers.page import table, write_part

from .cases import Case
from .gateways import Contender
from .plots import file_of
from .run import Found

PAGE = Path("docs/exactness.md")
COMMAND = "make bench-exactness"

TITLES = "| gateway | share a limit by | passed | beyond the limit | wrongly refused | errors | p99, ms |"
RULE = "| --- | --- | ---: | ---: | ---: | ---: | ---: |"

# What a case found of a gateway, or why it was left out.
Result = Found | str


def section(case: Case, results: list[tuple[Contender, Result]]) -> str:
    rows = table(TITLES, RULE, [line(contender, result) for contender, result in results])
    picture = f"![{case.title}: {case.shown_text} that passed, by gateway]({file_of(case).relative_to(PAGE.parent)})"
    return f"{case.text}\n\n{picture}\n\n{rows}{stated(case, results)}\n{stamp(case)}\n"


def line(contender: Contender, result: Result) -> str:
    head = f"| {contender.name} | {contender.shares} |"
    if isinstance(result, str):
        return f"{head} {result} | | | | |"
    found = result.judgement
    return (
        f"{head} {found.allowed} | {tokens(found.over_grant)} | {found.wrongly_refused} | {found.errors} |"
        f" {latency(result)} |"
    )


def tokens(number: float) -> str:
    return f"{number:.0f}" if number == 0 or number >= 10 else f"{number:.1f}"


def latency(found: Found) -> str:
    """Before a disturbance and during it, or of the whole case."""
    before = f"{found.p99_before_ms:.0f}"
    return before if found.p99_during_ms is None else f"{before} → {found.p99_during_ms:,.0f}"


def stated(case: Case, results: list[tuple[Contender, Result]]) -> str:
    """Whether tollgate kept to its stated bound, if it may exceed the limit in this case."""
    most = [
        result.judgement.over_grant
        for contender, result in results
        if contender.uses_redis and contender.name.startswith("tollgate") and isinstance(result, Found)
    ]
    if not case.stated_text or not most:
        return ""
    verdict = "holds" if most[0] <= case.stated else "**does not hold**"
    return f"\nThe stated bound of tollgate, at most {case.stated:.0f} tokens beyond the limit ({case.stated_text}), {verdict}.\n"


def stamp(case: Case) -> str:
    return f"`{COMMAND} CASE={case.name}`, {date.today()}, {provenance.line()}."


def write(case: Case, text: str) -> None:
    write_part(PAGE, case.name, text)


def write_versions(versions: str) -> None:
    write_part(PAGE, "versions", f"{versions}.\n")
