"""The limits of the cases, and which buckets a request takes from."""

from dataclasses import dataclass
from enum import Enum

from peers.gateways import Quota

from .judge import Bucket
from .traffic import Planned

# The limit of each client. Its burst is what it gets in a second, so that a sliding second has the same bound.
RATE = BURST = 20
# The cost of a request to `/costly`.
COST = 5


@dataclass(frozen=True)
class Limit:
    """A token bucket for each value of a header; for all requests together if there is none."""

    name: str
    header: str | None
    rate: int
    burst: int

    @property
    def quota(self) -> Quota:
        return Quota(self.rate, 1, self.burst)


PER_KEY = Limit("key", "x-api-key", RATE, BURST)


class Limits(Enum):
    """What the gateways are configured with."""

    ONE = "one limit"
    # In this order. All but those of the key and the tenant are wide.
    FOUR = "four limits"
    COSTS = "costs"

    @property
    def all(self) -> list[Limit]:
        if self is not Limits.FOUR:
            return [PER_KEY]
        wide, tenant = Limit("region", "x-region", 500, 500), Limit("tenant", "x-tenant", 10, 10)
        return [wide, PER_KEY, tenant, Limit("all", None, 500, 500)]

    def charges(self, planned: Planned) -> dict[str, float]:
        """Tokens that a request takes, by bucket."""
        return {self.bucket(limit, planned): self.cost(planned) for limit in self.all}

    def cost(self, planned: Planned) -> float:
        """Tokens that a request takes from each of its buckets."""
        return planned.cost if self is Limits.COSTS else 1

    def buckets(self, planned: list[Planned]) -> dict[str, Bucket]:
        """All buckets of the requests."""
        return {
            self.bucket(limit, one): Bucket(limit.rate, limit.burst) for one in planned for limit in self.all
        }

    @staticmethod
    def bucket(limit: Limit, planned: Planned) -> str:
        values = {"x-api-key": planned.client, "x-tenant": planned.tenant}
        return f"{limit.name} {values.get(limit.header or '', '')}".strip()
