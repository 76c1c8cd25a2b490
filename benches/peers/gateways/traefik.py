"""Traefik: as a plain proxy, and with its limiter in memory and in Redis."""

import json

from .gateway import KEPT, Gateway, Site, Store


def command(site: Site, store: Store, has_tls: bool = False) -> list[str]:
    limit = {
        "average": site.quota.tokens,
        "period": f"{site.quota.seconds}s",
        "burst": site.quota.burst,
        "sourceCriterion": {"requestHeaderName": "X-Api-Key"},
    }
    if store is Store.REDIS:
        limit["redis"] = {"endpoints": [f"127.0.0.1:{site.redis.port}"]}
    router = {"rule": "PathPrefix(`/`)", "service": "api"}
    http = {"routers": {"all": router}}
    if store is not Store.NONE:
        router["middlewares"] = ["limit"]
        http["middlewares"] = {"limit": {"rateLimit": limit}}
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


ALONE = Gateway("Traefik", Store.NONE, lambda site: command(site, Store.NONE))
TLS = Gateway(
    "Traefik", Store.NONE, lambda site: command(site, Store.NONE, has_tls=True), has_tls=True
)
MEMORY = Gateway("Traefik, in memory", Store.MEMORY, lambda site: command(site, Store.MEMORY))
REDIS = Gateway("Traefik, in Redis", Store.REDIS, lambda site: command(site, Store.REDIS))
