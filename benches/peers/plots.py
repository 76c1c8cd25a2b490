"""A plot of each job: requests per second, and CPU per request.

Uses matplotlib, imported only where it draws, so that everything else needs only Python.
"""

import re
from pathlib import Path

import svg

from .results import Row

FOLDER = Path("docs/benchmarks")
OURS, THEIRS, REDIS = "#c2410c", "#64748b", "#cbd5e1"


def file_of(title: str) -> Path:
    return FOLDER / (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".svg")


def draw(title: str, rows: dict[str, Row]) -> None:
    """Writes the SVG of one job."""
    names = [name.replace("`", "") for name in rows]
    figure, (rates, costs) = svg.pyplot().subplots(
        1, 2, sharey=True, figsize=(9, 0.9 + 0.34 * len(rows)), layout="constrained"
    )
    colours = [OURS if name.startswith("tollgate") else THEIRS for name in names]
    bars(rates, names, list(rows.values()), "requests_per_second", colours)
    bars(costs, names, list(rows.values()), "cpu_us", colours)
    redis = [row.spreads["redis_cpu_us"].median for row in rows.values()]
    own = [row.spreads["cpu_us"].median for row in rows.values()]
    if any(redis):
        costs.barh(names, redis, left=own, color=REDIS, label="Redis")
        costs.legend(frameon=False)
    rates.set_xlabel("requests/s")
    costs.set_xlabel("CPU, µs a request")
    rates.invert_yaxis()
    FOLDER.mkdir(exist_ok=True)
    svg.save(figure, file_of(title))


def bars(axes, names: list[str], rows: list[Row], column: str, colours: list[str]) -> None:
    """A bar for each gateway: the median, with a line from the minimum to the maximum."""
    spreads = [row.spreads[column] for row in rows]
    medians = [spread.median for spread in spreads]
    below = [spread.median - spread.low for spread in spreads]
    above = [spread.high - spread.median for spread in spreads]
    axes.barh(names, medians, xerr=[below, above], color=colours, ecolor="#1e293b", capsize=2)
