"""Traefik: as a plain proxy, and with its limiter in memory and in Redis."""

import json

from .gateway import KEPT, Gateway, Place, Quota, Site, Store


def command(site: Place, limits: list[dict], has_tls: bool = False) -> list[str]:
    """`limits` are those of middlewares, which decide in turn."""
    router: dict = {"rule": "PathPrefix(`/`)", "service": "api"}
    http: dict = {"routers": {"all": router}}
    if limits:
        middlewares = {f"limit{number}": {"rateLimit": one} for number, one in enumerate(limits)}
        router["middlewares"] = list(middlewares)
        http["middlewares"] = middlewares
    servers = [{"url": f"http://127.0.0.1:{site.upstream}"}]
    http["services"] = {"api": {"loadBalancer": {"servers": servers, "serversTransport": "kept"}}}
    http["serversTransports"] = {"kept": {"maxIdleConnsPerHost": KEPT}}
    dynamic: dict = {"http": http}
    if has_tls:
        router["tls"] = {}
        files = {"certFile": str(site.certificate.cert), "keyFile": str(site.certificate.key)}
        dynamic["tls"] = {"certificates": [files]}
    # JSON is valid YAML.
    file = site.folder / f"{site.port}.yml"
    file.write_text(json.dumps(dynamic))
    return [
        ".deps/peers/bin/traefik",
        f"--entrypoints.web.address=127.0.0.1:{site.port}",
        f"--providers.file.filename={file}",
        "--log.level=ERROR",
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
    ]


def limit(site: Site, store: Store) -> dict:
    """A limit for each key."""
    redis = f"127.0.0.1:{site.redis.port}" if store is Store.REDIS else None
    return rate_limit(site.quota, {"requestHeaderName": "X-Api-Key"}, redis)


def rate_limit(quota: Quota, criterion: dict, redis: str | None) -> dict:
    """A limit for each value of the criterion, in memory if there is no address of Redis."""
    limit = {
        "average": quota.tokens,
        "period": f"{quota.seconds}s",
        "burst": quota.burst,
        "sourceCriterion": criterion,
    }
    return limit | ({"redis": {"endpoints": [redis]}} if redis else {})


def limited(store: Store) -> Gateway:
    return Gateway(f"Traefik, in {store.value}", store, lambda site: command(site, [limit(site, store)]))


ALONE = Gateway("Traefik", Store.NONE, lambda site: command(site, []))
TLS = Gateway("Traefik", Store.NONE, lambda site: command(site, [], has_tls=True), has_tls=True)
MEMORY = limited(Store.MEMORY)
REDIS = limited(Store.REDIS)
