"""The results of a run, and the committed results."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .exactness import Exactness
from .idle import Idle
from .measure import Figures, Pair
from .spread import Spread

FILE = Path("benches/peers/figures.json")


@dataclass(frozen=True)
class Column:
    """A column of the tables."""

    name: str
    title: str
    of: Callable[[Figures], float]
    digits: int
    # Whether the baseline has this value, so that there is a ratio.
    has_ratio: bool = True


COLUMNS = [
    Column("requests_per_second", "requests/s", lambda figures: figures.requests_per_second, 0),
    Column("cpu_us", "CPU, µs", lambda figures: figures.cpu_us, 1),
    Column("redis_cpu_us", "Redis CPU, µs", lambda figures: figures.redis_cpu_us, 2, False),
    Column("both_cpu_us", "both, µs", lambda figures: figures.both_cpu_us, 1),
    Column("redis_calls", "Redis calls", lambda figures: figures.redis_calls, 4, False),
    Column("p50_ms", "p50, ms", lambda figures: figures.p50_ms, 2),
    Column("p99_ms", "p99, ms", lambda figures: figures.p99_ms, 2),
    Column("memory_mb", "memory, MB", lambda figures: figures.memory_mb, 0),
]


@dataclass(frozen=True)
class Row:
    """One gateway in one job: the spread of each column and of its ratio to the baseline."""

    spreads: dict[str, Spread]
    ratios: dict[str, Spread]
    # Additional milliseconds compared with the baseline.
    added_p99_ms: Spread

    @classmethod
    def of(cls, pairs: list[Pair]) -> "Row":
        spreads, ratios = {}, {}
        for column in COLUMNS:
            spreads[column.name] = Spread.of([column.of(pair.own) for pair in pairs])
            if column.has_ratio:
                parts = [column.of(pair.own) / column.of(pair.baseline) for pair in pairs]
                ratios[column.name] = Spread.of(parts)
        added_p99_ms = Spread.of([pair.own.p99_ms - pair.baseline.p99_ms for pair in pairs])
        return cls(spreads, ratios, added_p99_ms)

    @classmethod
    def read(cls, written: dict) -> "Row":
        def of(spreads: dict) -> dict[str, Spread]:
            return {name: Spread(**spread) for name, spread in spreads.items()}

        return cls(of(written["spreads"]), of(written["ratios"]), Spread(**written["added_p99_ms"]))


@dataclass
class Results:
    """Results by title of the job and name of the gateway, in the order of the run."""

    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    exactness: list[Exactness] = field(default_factory=list)
    crowd_mb: float | None = None
    idle: list[Idle] = field(default_factory=list)

    def write(self) -> None:
        rows = {
            job: {gateway: asdict(row) for gateway, row in rows.items()}
            for job, rows in self.rows.items()
        }
        written = json.loads(FILE.read_text()) if FILE.exists() else {}
        FILE.write_text(json.dumps(written | rounded(rows), indent=1) + "\n")

    def of_titles(self, titles: set[str]) -> "Results":
        """Only the rows of these jobs."""
        return Results({title: rows for title, rows in self.rows.items() if title in titles})

    def outside(self, committed: dict[str, dict[str, Row]]) -> Iterator[str]:
        """Each value outside the spread of its committed value."""
        for job, rows in self.rows.items():
            for gateway, row in rows.items():
                old = committed.get(job, {}).get(gateway)
                if old:
                    yield from (f"{job}: {gateway}: {text}" for text in row_outside(row, old))


def row_outside(row: Row, old: Row) -> Iterator[str]:
    for column in COLUMNS:
        now, then, digits = row.spreads[column.name].median, old.spreads[column.name], column.digits
        if not then.holds(now, digits):
            yield (
                f"{column.title} {now:.{digits}f}, committed {then.median:.{digits}f}"
                f" ({then.low:.{digits}f} to {then.high:.{digits}f})"
            )


def committed() -> dict[str, dict[str, Row]]:
    """The rows of the last commit; empty if there are none."""
    show = ["git", "show", f"HEAD:{FILE}"]
    shown = subprocess.run(show, capture_output=True, text=True, check=False)
    jobs = json.loads(shown.stdout) if shown.returncode == 0 else {}
    return {
        job: {gateway: Row.read(row) for gateway, row in rows.items()} for job, rows in jobs.items()
    }


def rounded(value):
    """Rounds all nested numbers to six decimals."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return round(value, 6)
