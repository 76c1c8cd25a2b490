"""A picture of each case: what passed over time, less the rate, so that an exact gateway stays at its burst."""

from pathlib import Path

import svg

from .cases import Case
from .gateways import Contender
from .run import Found

FOLDER = Path("docs/exactness")

# Colour by the beginning of the name.
COLOURS = {
    "tollgate, Redis": "#c2410c",
    "tollgate, memory": "#fb923c",
    "nginx, Lua": "#1d4ed8",
    "nginx, `limit_req`": "#60a5fa",
    "Traefik, Redis": "#15803d",
    "Traefik, memory": "#4ade80",
    "HAProxy": "#7e22ce",
    "Envoy": "#db2777",
}


def file_of(case: Case) -> Path:
    return FOLDER / f"{case.name}.svg"


def draw(case: Case, results: list[tuple[Contender, Found | str]]) -> None:
    figure, axes = svg.pyplot().subplots(figsize=(9, 3.4), layout="constrained")
    burst, rate = case.may
    # The first one last and thinnest, since many lines are the same.
    for number, (contender, found) in reversed(list(enumerate(results))):
        if isinstance(found, Found):
            colour = next(colour for name, colour in COLOURS.items() if contender.name.startswith(name))
            times, values = curve(found.shown, rate, case.seconds)
            axes.plot(times, values, color=colour, linewidth=1.4 + 0.6 * number, label=contender.name.replace("`", ""))
    axes.axhline(burst, color="#1e293b", linewidth=0.8, linestyle=(0, (6, 3)))
    axes.annotate(case.may_text, (0, burst), xytext=(2, 3), textcoords="offset points", color="#1e293b")
    shade(axes, results)
    axes.set_xlim(0, case.seconds)
    axes.set_xlabel("seconds")
    axes.set_ylabel(f"{case.shown_text},\nless {rate} a second")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
    FOLDER.mkdir(exist_ok=True)
    svg.save(figure, file_of(case))


def curve(shown: list[tuple[float, float]], rate: float, seconds: float) -> tuple[list[float], list[float]]:
    """Tokens that passed until each tenth of a second, less `rate` tokens a second."""
    times = [tenth / 10 for tenth in range(round(seconds * 10) + 1)]
    return times, [sum(tokens for at, tokens in shown if at <= time) - rate * time for time in times]


def shade(axes, results: list[tuple[Contender, Found | str]]) -> None:
    """The time from the first to the last disturbance, of the first gateway."""
    spans = [found.span for _, found in results if isinstance(found, Found) and found.span]
    if spans:
        begin, end = spans[0]
        axes.axvspan(begin, max(end, begin + 0.03), color="#fee2e2", alpha=0.6, linewidth=0)
