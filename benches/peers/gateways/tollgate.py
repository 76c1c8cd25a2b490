"""tollgate with its default settings, but for three: one address may have any number of connections, a connection
any number of requests, and a check may wait for Redis for 100 ms instead of 10."""

import os
import re
import urllib.request
from collections.abc import Callable
from enum import Enum

from ..processes import BUILT, free_port
from .gateway import Gateway, Place, Quota, Site, Store

TARGET = os.path.dirname(BUILT)


class Build(Enum):
    """The kind of build."""

    RELEASE = BUILT
    # Profile-guided optimisation: `make pgo`.
    PGO = f"{TARGET}/pgo"

    @property
    def is_built(self) -> bool:
        return os.path.exists(f"{self.value}/tollgate")


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

    def decided_locally(site: Site) -> int:
        file = (site.folder / f"{site.port}.toml").read_text()
        admin = re.search(r'^admin = "(.+)"$', file, re.MULTILINE)[1]
        with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as response:
            return local_decisions(response.read().decode())

    what = {0: "no rule", 1: "one rule", 4: "four rules"}[rules]
    also = (", access log" if has_access_log else "") + (", PGO" if build is Build.PGO else "")
    local = decided_locally if store is Store.REDIS else None
    return Gateway(f"tollgate, {what}{where(store)}{also}", store, command, decided_locally=local)


def local_decisions(metrics: str) -> int:
    """The decisions of the process that were not made by Redis, but for want of its answer."""
    series = r'^tollgate_decisions_total\{[^}]*source="local"[^}]*\} (\S+)$'
    return round(sum(float(value) for value in re.findall(series, metrics, re.MULTILINE)))


def with_tls(build: Build = Build.RELEASE) -> Gateway:
    """tollgate without rules on a TLS listener."""

    def listener(site: Site) -> str:
        certificate = site.certificate
        return f'certificates = [{{ cert = "{certificate.cert}", key = "{certificate.key}" }}]'

    also = ", PGO" if build is Build.PGO else ""
    return on_listener(f"tollgate{also}", listener, build, has_tls=True)


def with_http2() -> Gateway:
    """tollgate without rules on a listener in clear, for HTTP/1.1 and HTTP/2."""
    return on_listener("tollgate", lambda _: "http2 = true", Build.RELEASE)


def on_listener(
    name: str, settings: Callable[[Site], str], build: Build, has_tls: bool = False
) -> Gateway:
    """tollgate without rules on one listener with these settings."""

    def command(site: Site) -> list[str]:
        file = site.folder / f"{site.port}.toml"
        listener = f'[[listeners]]\naddress = "127.0.0.1:{site.port}"\n{settings(site)}\n'
        file.write_text(text(site, 0, Store.NONE, listen="") + listener)
        return [f"{build.value}/tollgate", "run", "-c", str(file)]

    return Gateway(name, Store.NONE, command, has_tls)


def where(store: Store) -> str:
    return "" if store is Store.NONE else f" in {store.value}"


def text(site: Site, rules: int, store: Store, listen: str | None = None) -> str:
    """The configuration. `listen` is the line of the listener, if it is not a plain one."""
    if listen is None:
        listen = f'listen = ["127.0.0.1:{site.port}"]\n'
    limits = "".join(rule(name, per, site.quota) for name, per in list(RULES.items())[:rules])
    redis = redis_table(f"redis://127.0.0.1:{site.redis.port}") if store is Store.REDIS else ""
    return f"{base(site, listen)}[routes.all]\n{redis}{limits}"


def redis_table(url: str) -> str:
    """The timeout is long, so that a busy machine measures Redis and not the local fallback."""
    return f'[redis]\nurl = "{url}"\ntimeout = "100ms"\n'


def base(site: Place, listen: str) -> str:
    """The configuration without routes and rules."""
    return f"""[server]
{listen}admin = "127.0.0.1:{free_port()}"
threads = 1
limits.max_connections_per_ip = 100000
limits.max_requests_per_connection = 0
[clients]
api_key = ["header:x-api-key"]
on_unknown_key = "accept"
[plans.free]
[upstreams.api]
servers = ["127.0.0.1:{site.upstream}"]
"""


def rule(name: str, per: str, quota: Quota) -> str:
    unit = "h" if quota.seconds == 3600 else "s"
    return f'[rules.{name}]\nper = {per}\nrate = "{quota.tokens}/{unit}"\nburst = {quota.burst}\n'
