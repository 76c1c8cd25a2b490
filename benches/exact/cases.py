"""The cases: traffic, and what happens meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from .clock import WallClock
from .fleet import Fleet
from .gateways import Contender, Reload
from .limits import BURST, RATE, Limits
from .stores import Store, Watched
from .traffic import Planned, pulses, steady

# A client that asks for more than its limit, and one that asks for half of it.
HOT, CALM = "hot", "calm"


@dataclass
class Scene:
    """What a disturbance can act on."""

    fleet: Fleet
    store: Store
    clock: WallClock
    redis_clock: WallClock
    start: float
    # The time from the first to the last disturbance, in seconds since the start.
    span: tuple[float, float] | None = None

    async def at(self, seconds: float) -> None:
        """Waits until a time since the start, at which a disturbance begins or ends."""
        await asyncio.sleep(max(0.0, self.start + seconds - time.monotonic()))
        self.mark()

    def mark(self) -> None:
        """A disturbance begins or ends now."""
        now = time.monotonic() - self.start
        self.span = (self.span[0] if self.span else now, now)


Disturbance = Callable[[Scene], Awaitable[None]]


async def nothing(_: Scene) -> None:
    pass


async def reload(scene: Scene) -> None:
    await scene.at(3)
    scene.fleet.reload()


async def restart(scene: Scene) -> None:
    """The other gateway takes the traffic meanwhile."""
    ports = [member.place.port for member in scene.fleet.members]
    await scene.at(3)
    scene.fleet.in_service[:] = ports[1:]
    # Those in flight end.
    await asyncio.sleep(0.3)
    await asyncio.to_thread(scene.fleet.restart, 0)
    scene.fleet.in_service[:] = ports[:1]
    scene.mark()


async def hang(scene: Scene) -> None:
    await scene.at(4)
    scene.store.hang()
    await scene.at(7)
    scene.store.resume()


async def kill(scene: Scene) -> None:
    await scene.at(4)
    await asyncio.to_thread(scene.store.kill)
    await scene.at(14)
    await asyncio.to_thread(scene.store.start_again)


async def fail_over(scene: Scene) -> None:
    await scene.at(4)
    await asyncio.to_thread(scene.store.kill)
    await asyncio.to_thread(scene.store.wait_until_promoted)
    scene.mark()


async def step_gateway_clock(scene: Scene) -> None:
    for at, off in ((3, 3600), (5, -3600), (7, 0)):
        await scene.at(at)
        scene.clock.set(off)


async def step_redis_clock(scene: Scene) -> None:
    for at, off in ((3, 5), (5, -5)):
        await scene.at(at)
        scene.redis_clock.set(off)


def with_calm(hot: list[Planned], seconds: float) -> list[Planned]:
    return [*hot, *steady(CALM, 10, seconds)]


def usual(seconds: float) -> list[Planned]:
    return with_calm(steady(HOT, 90, seconds), seconds)


def four_limits(seconds: float) -> list[Planned]:
    """Of tenant `t`, four times what its limit allows; beside them a few of another one, which must all pass."""
    return [*steady(HOT, 40, seconds), *steady(HOT, 8, seconds, tenant="other")]


def costly(seconds: float) -> list[Planned]:
    return with_calm([*steady(HOT, 30, seconds), *steady(HOT, 10, seconds, cost=5)], seconds)


def any_gateway(_: Contender) -> str:
    return ""


def with_redis(contender: Contender) -> str:
    return "" if contender.uses_redis else "does not use Redis"


def finds_new_master(contender: Contender) -> str:
    return with_redis(contender) or ("" if contender.finds_new_master else "does not look for a new master")


def has_reload(contender: Contender) -> str:
    return "not tried" if contender.reload is Reload.NONE else ""


def reads_libc_clock(contender: Contender) -> str:
    return contender.clock_is_fixed


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    text: str
    gateways: int
    seconds: float
    traffic: Callable[[float], list[Planned]] = usual
    limits: Limits = Limits.ONE
    disturb: Disturbance = nothing
    # Why a gateway is left out; empty if it is not.
    lacks: Callable[[Contender], str] = any_gateway
    store: type[Store] = Store
    # Requests that the picture counts, and their limit in it.
    shown: Callable[[Planned], bool] = field(default=lambda one: one.client == HOT)
    shown_text: str = "tokens of the busy client"
    # Tokens at once and a second that may be in the picture at most.
    may: tuple[float, float] = (BURST, RATE)
    may_text: str = "limit"
    # What tollgate may grant beyond the limit by its documentation, in tokens, and why.
    stated: float = 0
    stated_text: str = ""
    # Whether all requests go to the first gateway, until a disturbance changes that.
    starts_on_first: bool = False

    def reason(self, contender: Contender) -> str:
        if self.limits not in contender.limits:
            return f"does not have {self.limits.value}"
        return self.lacks(contender)


# Two gateways return to Redis one after the other, within 20 s: the second one grants half the rate meanwhile.
APART = 20 * RATE / 2
APART_TEXT = "and 10 a second while only one gateway has returned to Redis, which lasts 20 seconds at most"

USUAL = "One client sends 90 requests a second, one sends 10. Each may have 20 a second and a burst of 20."

CASES = [
    Case("two", "Two gateways", f"{USUAL} A load balancer sends requests to two gateways in turn.", 2, 6),
    Case("three", "Three gateways", "The same traffic, over three gateways.", 3, 6),
    Case(
        "four",
        "Four limits of which one is exhausted",
        "Limits per region (500 a second), API key (20), tenant (10) and for all (500), checked in this order. One client sends"
        " 40 requests a second of one tenant, whose limit refuses most of them, and 8 a second of another tenant, which has"
        " tokens for all: if a refused request takes tokens of the key, they lack here. The picture shows the second tenant.",
        1,
        8,
        four_limits,
        Limits.FOUR,
        shown=lambda one: one.tenant == "other",
        shown_text="requests of the second tenant",
        may=(0, 8),
        may_text="sent",
    ),
    Case(
        "costs",
        "Costs",
        "One client sends 30 requests a second that cost 1 token and 10 that cost 5, one sends 10 that cost 1. Limits as above.",
        1,
        6,
        costly,
        Limits.COSTS,
    ),
    Case(
        "pulses",
        "Bursts in pulses",
        "One client sends 60 requests at the same moment, every 1.5 seconds, to two gateways in turn; one sends 10 a second.",
        2,
        9,
        lambda seconds: with_calm(pulses(HOT, 60, 1.5, seconds), seconds),
    ),
    Case(
        "reload",
        "A reload",
        f"{USUAL} One gateway, whose file gets one more route or header after 3 seconds. The limits stay.",
        1,
        6,
        disturb=reload,
        lacks=has_reload,
    ),
    Case(
        "restart",
        "A gateway restarted",
        f"{USUAL} One gateway serves, and is ended and started after 3 seconds. Another one takes its requests meanwhile, and has none before and after.",
        2,
        8,
        disturb=restart,
        starts_on_first=True,
    ),
    Case(
        "hang",
        "Redis hangs for 3 seconds",
        f"{USUAL} Two gateways. Redis is stopped by SIGSTOP after 4 seconds, and goes on after 7.",
        2,
        16,
        disturb=hang,
        lacks=with_redis,
        stated=40 + APART,
        stated_text=f"two bursts, {APART_TEXT}",
    ),
    Case(
        "kill",
        "Redis is killed for 10 seconds",
        f"{USUAL} Two gateways. Redis is killed after 4 seconds, and started after 14, without its data.",
        2,
        36,
        disturb=kill,
        lacks=with_redis,
        stated=60 + APART,
        stated_text=f"two bursts, one for the data that Redis lost, {APART_TEXT}",
    ),
    Case(
        "failover",
        "A replica takes over",
        f"{USUAL} Two gateways. The master of Redis is killed after 4 seconds, and a sentinel promotes its replica.",
        2,
        18,
        disturb=fail_over,
        lacks=finds_new_master,
        store=Watched,
        stated=40 + APART,
        stated_text=f"two bursts, {APART_TEXT}",
    ),
    Case(
        "clock",
        "The clock of the gateway steps",
        f"{USUAL} One gateway, whose clock is set forward by an hour after 3 seconds, back by two after 5, and right after 7.",
        1,
        10,
        disturb=step_gateway_clock,
        lacks=reads_libc_clock,
    ),
    Case(
        "redis-clock",
        "The clock of Redis steps",
        f"{USUAL} One gateway. The clock of Redis is set forward by 5 seconds after 3 seconds, and back by 10 after 5.",
        1,
        10,
        disturb=step_redis_clock,
        lacks=with_redis,
        stated=20,
        stated_text="what an empty bucket gets by a step forward",
    ),
]
