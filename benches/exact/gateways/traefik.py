"""Traefik with its limiter in Redis and in memory."""

import json
from pathlib import Path

from peers.gateways import Store
from peers.gateways.traefik import command, rate_limit

from ..limits import Limit, Limits
from . import Contender, Member, Reload
from .member import replaced


def contender(store: Store, shares: str) -> Contender:
    return Contender(
        f"Traefik, {store.value}",
        shares,
        lambda member: configured(member, store),
        frozenset({Limits.ONE, Limits.FOUR}),
        store is Store.REDIS,
        reload=Reload.WATCHES,
        clock_is_fixed="not tried: Go reads the clock without the C library",
    )


def configured(member: Member, store: Store) -> list[str]:
    if member.is_changed:
        add_route(member.place.folder / f"{member.place.port}.yml")
        return []
    redis = member.redis_url.removeprefix("redis://") if store is Store.REDIS else None
    return command(member.place, [rate_limit(one.quota, criterion(one), redis) for one in member.limits.all])


def criterion(limit: Limit) -> dict:
    return {"requestHeaderName": limit.header} if limit.header else {"requestHost": True}


def add_route(file: Path) -> None:
    dynamic = json.loads(file.read_text())
    dynamic["http"]["routers"]["added"] = {"rule": "Path(`/added`)", "service": "api"}
    replaced(file, json.dumps(dynamic))


CONTENDERS = [contender(Store.REDIS, "Redis"), contender(Store.MEMORY, "not at all")]
