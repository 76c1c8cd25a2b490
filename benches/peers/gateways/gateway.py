"""The task of a gateway, and how to start it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..servers import Certificate, Redis

# Maximum number of kept upstream connections: the maximum number of client connections.
KEPT = 512


@dataclass(frozen=True)
class Quota:
    """A rate of `tokens` per `seconds`, and a burst."""

    tokens: int
    seconds: int
    burst: int


# No request is refused.
OPEN = Quota(1_000_000, 1, 1_000_000)
# Every request after the first is refused.
SHUT = Quota(1, 3600, 1)
EXACT = Quota(10, 1, 10)


class Store(Enum):
    """Where buckets are stored."""

    NONE = "proxy only"
    MEMORY = "memory"
    REDIS = "Redis"


@dataclass(frozen=True)
class Place:
    """Folder and ports of a gateway."""

    folder: Path
    port: int
    upstream: int


@dataclass(frozen=True)
class Site(Place):
    """The place of a gateway that is measured, and its limits."""

    redis: Redis
    quota: Quota
    certificate: Certificate


@dataclass(frozen=True)
class Gateway:
    """A program with one configuration."""

    name: str
    store: Store
    # Writes the configuration and returns the command.
    command: Callable[[Site], list[str]]
    # Whether it listens with TLS, for HTTP/1.1 and HTTP/2.
    has_tls: bool = False
    # Number of decisions without Redis since its start, if it can decide without it.
    decided_locally: Callable[[Site], int] | None = None
