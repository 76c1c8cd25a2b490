"""What must hold at the end. Pure: takes what was read, returns findings."""

from collections import Counter
from dataclasses import dataclass
from statistics import median

# Growth of resident memory from the first to the last fifth after the warm-up.
MAX_GROWTH = 0.02

# Statuses that clients may get: those of the upstream, of limits, and of an upstream that fails.
STATUSES = {101, 200, 400, 408, 429, 502, 503, 504, None}


@dataclass
class Finding:
    what: str
    measured: str
    holds: bool


@dataclass
class Sample:
    """One reading of the process."""

    at_s: float
    resident_kb: int
    descriptors: int


def memory(samples: list[Sample]) -> Finding:
    """Compares the medians of two fifths, so that a peak of one fault does not count."""
    fifth = max(len(samples) // 5, 1)
    first = median(sample.resident_kb for sample in samples[:fifth])
    last = median(sample.resident_kb for sample in samples[-fifth:])
    measured = f"{first:,.0f} to {last:,.0f} KB, {last / first - 1:+.1%}"
    return Finding(f"memory grows by at most {MAX_GROWTH:.0%}", measured, last <= first * (1 + MAX_GROWTH))


def at_rest(before: Counter[str], after: Counter[str], gauges: dict[str, float]) -> list[Finding]:
    """What a process holds without clients, compared with the rest after the warm-up."""
    added = ", ".join(f"{count} {name}" for name, count in (after - before).items())
    measured = f"{before.total()} before, {after.total()} after; added: {added or 'none'}"
    return [
        Finding("no descriptor is left open", measured, not added),
        *(Finding(f"{name} is 0 at rest", f"{value:g}", value == 0) for name, value in gauges.items()),
    ]


def requests(gateway: list[dict], upstream: list[str], counted: float, dropped: float, kills: int) -> list[Finding]:
    """Compares the gateway's log with the upstream's log of request ids. The upstream writes a line after its
    response, so each time that it is killed may cost one."""
    complete = {line["id"] for line in gateway if line["server"] and line["status"] in (101, 200)}
    forwarded = {line["id"] for line in gateway if line["server"]}
    seen = set(upstream)
    missing, unknown = complete - seen, seen - forwarded
    statuses = {line["status"] for line in gateway}
    return [
        Finding("the log of the gateway is complete", f"{dropped:g} lines dropped", dropped == 0),
        Finding(
            "the metrics count what the log lists",
            f"{counted:,.0f} requests, {len(gateway):,} lines",
            counted == len(gateway),
        ),
        Finding("each complete request reached the upstream", f"{len(missing)} did not, of {len(complete):,}; {kills} kills", len(missing) <= kills),
        Finding("the upstream saw only requests of the log", f"{len(unknown)} others, of {len(seen):,}", not unknown),
        Finding("no request reached it twice", f"{len(upstream) - len(seen)} did", len(upstream) == len(seen)),
        Finding(
            "no other status",
            ", ".join(sorted(str(status) for status in statuses)),
            statuses <= STATUSES,
        ),
    ]


def limit(allowed: int, burst: int, per_second: float, seconds: float, losses: int) -> Finding:
    """The bound of docs/outages.md for one gateway, and a burst for each time that Redis lost its data. The clients send
    somewhat more than the rate, in spells: a quarter of it passes in any case."""
    least, bound = burst + per_second * seconds / 4, burst * (3 + losses) + per_second * seconds
    measured = f"{allowed:,} of {least:,.0f} to {bound:,.0f}"
    return Finding("the limited client gets a part of its rate, within the bound", measured, least <= allowed <= bound)
