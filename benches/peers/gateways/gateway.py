"""What a gateway is asked to do, and what it takes to start one."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..servers import Redis

# How many connections to the upstream a gateway may keep: as many as clients have at most.
KEPT = 512


@dataclass(frozen=True)
class Quota:
    """`tokens` in `seconds`, and `burst` at once."""

    tokens: int
    seconds: int
    burst: int


# Nobody is ever refused.
OPEN = Quota(1_000_000, 1, 1_000_000)
# Everybody is, after the first.
SHUT = Quota(1, 3600, 1)
EXACT = Quota(10, 1, 10)


class Store(Enum):
    """Where buckets live."""

    NONE = "proxy only"
    MEMORY = "memory"
    REDIS = "Redis"


@dataclass(frozen=True)
class Site:
    """Where a gateway stands, and what it holds its clients to."""

    folder: Path
    port: int
    upstream: int
    redis: Redis
    quota: Quota


@dataclass(frozen=True)
class Gateway:
    """A program, set up in one way."""

    name: str
    store: Store
    # Writes its files, and says how it is started.
    command: Callable[[Site], list[str]]
