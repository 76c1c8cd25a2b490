"""tollgate with its buckets in memory and in Redis."""

from pathlib import Path

from peers.gateways.tollgate import base, redis_table

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
    site = member.site
    path = site.folder / f"{site.port}.toml"
    if member.is_changed:
        return replaced(path, path.read_text().replace(ALL, f'[routes.added]\npath = "/added"\n{ALL}'))
    parts = [
        base(site, f'listen = ["127.0.0.1:{site.port}"]\n'),
        redis_table(member.redis_url) if uses_redis else "",
        f'[routes.costly]\npath = "/costly"\ncost = {COST}\n' if member.limits is Limits.COSTS else "",
        ALL,
        *map(rule, member.limits.all),
    ]
    return replaced(path, "".join(parts))


def rule(limit: Limit) -> str:
    per = {None: "[]", "x-api-key": '["key"]'}.get(limit.header, f'["header:{limit.header}"]')
    return f'[rules.{limit.name}]\nper = {per}\nrate = "{limit.rate}/s"\nburst = {limit.burst}\n'
