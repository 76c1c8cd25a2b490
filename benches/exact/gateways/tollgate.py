"""tollgate with its buckets in memory and in Redis."""

from pathlib import Path

from peers.gateways.tollgate import base, redis_table, rule

from ..limits import COST, Limit, Limits
from . import Contender, Member, Reload
from .member import replaced

ALL = "[routes.all]\n"


def contenders(program: str) -> list[Contender]:
    def contender(name: str, shares: str, uses_redis: bool) -> Contender:
        return Contender(
            f"tollgate, {name}",
            shares,
            lambda member: [program, "run", "-c", str(file(member, uses_redis))],
            frozenset(Limits),
            uses_redis,
            finds_new_master=uses_redis,
            reload=Reload.WATCHES,
        )

    return [contender("Redis", "Redis", True), contender("memory", "not at all", False)]


def file(member: Member, uses_redis: bool) -> Path:
    place = member.place
    path = place.folder / f"{place.port}.toml"
    if member.is_changed:
        return replaced(path, path.read_text().replace(ALL, f'[routes.added]\npath = "/added"\n{ALL}'))
    parts = [
        base(place, f'listen = ["127.0.0.1:{place.port}"]\n'),
        redis_table(member.redis_url) if uses_redis else "",
        f'[routes.costly]\npath = "/costly"\ncost = {COST}\n' if member.limits is Limits.COSTS else "",
        ALL,
        *(rule(one.name, per(one), one.quota) for one in member.limits.all),
    ]
    return replaced(path, "".join(parts))


def per(limit: Limit) -> str:
    return {None: "[]", "x-api-key": '["key"]'}.get(limit.header, f'["header:{limit.header}"]')
