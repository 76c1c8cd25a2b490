"""Several measurements of one thing."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """The median, the least and the most."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        return cls(median(values), min(values), max(values))

    def holds(self, value: float, digits: int) -> bool:
        """Whether `value` lies within, as far as tables show it."""
        return round(self.low, digits) <= round(value, digits) <= round(self.high, digits)
