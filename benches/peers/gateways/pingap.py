"""Pingap, also based on Pingora: as a plain proxy, and with its limiter, which counts requests per
interval. `scripts/peers` builds it; it is skipped if the build failed."""

from pathlib import Path

from .gateway import KEPT, Gateway, Site, Store

PROGRAM = ".deps/pingap/bin/pingap"
IS_BUILT = Path(PROGRAM).exists()


def command(site: Site, limit: str) -> list[str]:
    plugins = '["limit"]' if limit else "[]"
    file = site.folder / f"{site.port}.toml"
    file.write_text(
        f"""[basic]
threads = 1
upstream_keepalive_pool_size = {KEPT}
log_level = "ERROR"
grace_period = "0s"
graceful_shutdown_timeout = "0s"
{limit}
[upstreams.api]
addrs = ["127.0.0.1:{site.upstream}"]
[locations.all]
upstream = "api"
path = "/"
plugins = {plugins}
[servers.clients]
addr = "127.0.0.1:{site.port}"
locations = ["all"]
"""
    )
    return [PROGRAM, "-c", str(file)]


def alone(site: Site) -> list[str]:
    return command(site, "")


def limit(site: Site) -> list[str]:
    # The weight of the current interval against the last one, in percent. With the default of 50,
    # twice the limit is allowed at first.
    return command(
        site,
        f"""[plugins.limit]
category = "limit"
type = "rate"
tag = "header"
key = "x-api-key"
max = {site.quota.tokens}
interval = "{site.quota.seconds}s"
weight = 100""",
    )


def where_built(gateway: Gateway) -> list[Gateway]:
    """The gateway, or nothing if the program is missing."""
    return [gateway] if IS_BUILT else []


ALONE = Gateway("Pingap", Store.NONE, alone)
LIMIT = Gateway("Pingap, `limit`", Store.MEMORY, limit)
