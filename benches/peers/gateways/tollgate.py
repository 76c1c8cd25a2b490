"""tollgate with its default settings."""

import os
from enum import Enum

from ..processes import free_port
from .gateway import Gateway, Quota, Site, Store
from .pingora import BUILT

TARGET = os.path.dirname(BUILT)


class Build(Enum):
    """The kind of build."""

    RELEASE = BUILT
    # Profile-guided optimisation: `make pgo`.
    PGO = f"{TARGET}/pgo"


RULES = {"key": '["key"]', "ip": '["ip"]', "route": '["route"]', "everyone": "[]"}


def tollgate(
    rules: int, store: Store, build: Build = Build.RELEASE, has_access_log: bool = False
) -> Gateway:
    """tollgate with the first `rules` of: a rule per key, per address, per route, global."""

    def command(site: Site) -> list[str]:
        file = site.folder / f"{site.port}.toml"
        log = f'[access_log]\noutput = "{site.folder}/{site.port}.access"\n'
        file.write_text(text(site, rules, store) + (log if has_access_log else ""))
        return [f"{build.value}/tollgate", "run", "-c", str(file)]

    what = {0: "no rule", 1: "one rule", 4: "four rules"}[rules]
    also = (", access log" if has_access_log else "") + (", PGO" if build is Build.PGO else "")
    return Gateway(f"tollgate, {what}{where(store)}{also}", store, command)


def where(store: Store) -> str:
    return "" if store is Store.NONE else f" in {store.value}"


def text(site: Site, rules: int, store: Store) -> str:
    """The configuration."""
    redis = ""
    if store is Store.REDIS:
        # Long, so that a busy machine measures Redis and not the local fallback.
        redis = f'[redis]\nurl = "redis://127.0.0.1:{site.redis.port}"\ntimeout = "100ms"\n'
    limits = "".join(rule(name, per, site.quota) for name, per in list(RULES.items())[:rules])
    return f"""[server]
listen = ["127.0.0.1:{site.port}"]
admin = "127.0.0.1:{free_port()}"
threads = 1
[clients]
api_key = ["header:x-api-key"]
on_unknown_key = "accept"
[plans.free]
[upstreams.api]
servers = ["127.0.0.1:{site.upstream}"]
[routes.all]
{redis}{limits}"""


def rule(name: str, per: str, quota: Quota) -> str:
    unit = "h" if quota.seconds == 3600 else "s"
    return f'[rules.{name}]\nper = {per}\nrate = "{quota.tokens}/{unit}"\nburst = {quota.burst}\n'
