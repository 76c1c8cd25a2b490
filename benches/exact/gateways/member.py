"""A gateway of a case, and what it can do."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from peers.gateways import Place

from ..limits import Limits


@dataclass(frozen=True)
class Member:
    """One of several gateways with the same limits."""

    place: Place
    limits: Limits
    number: int
    # Ports by which all gateways send each other their counts.
    exchange_ports: list[int]
    redis_url: str
    # Whether the file has one more route than at the start.
    is_changed: bool = False


class Reload(Enum):
    """How a gateway is made to read its file again."""

    NONE = None
    WATCHES = 0
    SIGHUP = signal.SIGHUP
    SIGUSR2 = signal.SIGUSR2


@dataclass(frozen=True)
class Contender:
    """A gateway with one way to limit."""

    name: str
    # How several gateways share a limit, for the table.
    shares: str
    # Writes the configuration and returns the command, which a changed configuration does not need.
    command: Callable[[Member], list[str]]
    limits: frozenset[Limits] = frozenset({Limits.ONE})
    uses_redis: bool = False
    finds_new_master: bool = False
    reload: Reload = Reload.NONE
    # Why its clock cannot be set, if it cannot.
    clock_is_fixed: str = ""


def replaced(file: Path, text: str) -> Path:
    """Writes a file so that a gateway that watches it never reads a part of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    return new.rename(file)
