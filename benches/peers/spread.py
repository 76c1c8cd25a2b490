"""Statistics of repeated measurements."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        return cls(median(values), min(values), max(values))

    def holds(self, value: float, digits: int) -> bool:
        """Whether `value` is within the spread, at the precision of the tables."""
        return round(self.low, digits) <= round(value, digits) <= round(self.high, digits)
