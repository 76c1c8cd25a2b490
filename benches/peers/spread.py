"""Statistics of repeated measurements."""

from dataclasses import dataclass
from enum import Enum
from statistics import median


class Verdict(Enum):
    """Whether a bound holds. All values of a spread have to agree."""

    HOLDS = "holds"
    FAILS = "does not hold"
    # The bound lies between the least and the greatest value.
    NOISE = "within the noise"


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

    def verdict(self, bound: float, is_most: bool) -> Verdict:
        """Whether the values are at most `bound`, or at least."""
        is_within = [value <= bound if is_most else value >= bound for value in (self.low, self.high)]
        if all(is_within):
            return Verdict.HOLDS
        return Verdict.NOISE if any(is_within) else Verdict.FAILS

    def __truediv__(self, other: "Spread") -> "Spread":
        """The ratio of two measurements that were not made at the same time: of the medians, and of the extremes."""
        return Spread(self.median / other.median, self.low / other.high, self.high / other.low)
