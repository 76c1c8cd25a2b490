"""Envoy: as a plain proxy, and with `local_ratelimit`, which is one global bucket."""

import json

from .gateway import Gateway, Place, Quota, Site, Store

HTTP = "envoy.filters.http"
TYPE = "type.googleapis.com/envoy.extensions.filters"
ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}


def command(site: Place, filters: list[dict], chain: dict | None = None) -> list[str]:
    router = {
        "name": f"{HTTP}.router",
        "typed_config": {"@type": f"{TYPE}.http.router.v3.Router"},
    }
    everything = {"match": {"prefix": "/"}, "route": {"cluster": "api"}}
    manager = {
        "@type": f"{TYPE}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "http_filters": [*filters, router],
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [everything]}]
        },
    }
    manager = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    listener = {"address": address(site.port), "filter_chains": [{"filters": [manager], **(chain or {})}]}
    endpoint = {"endpoint": {"address": address(site.upstream)}}
    api = {
        "name": "api",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "api", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    file = site.folder / f"{site.port}.json"
    file.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [api]}}))
    return [
        *[".deps/peers/bin/envoy", "-c", str(file), "--concurrency", "1"],
        *["--log-level", "error", "--disable-hot-restart"],
    ]


def address(port: int) -> dict:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def alone(site: Site) -> list[str]:
    return command(site, [])


def with_tls(site: Site) -> list[str]:
    certificate = {
        "certificate_chain": {"filename": str(site.certificate.cert)},
        "private_key": {"filename": str(site.certificate.key)},
    }
    context = {"alpn_protocols": ["h2", "http/1.1"], "tls_certificates": [certificate]}
    socket = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3"
            ".DownstreamTlsContext",
            "common_tls_context": context,
        },
    }
    return command(site, [], {"transport_socket": socket})


def local_ratelimit(site: Site) -> list[str]:
    return command(site, [limiter(site.quota)])


def limiter(quota: Quota, **settings) -> dict:
    """The filter with a bucket for all requests, and further settings."""
    limit = {
        "@type": f"{TYPE}.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limit",
        "token_bucket": bucket(quota),
        "filter_enabled": ALWAYS,
        "filter_enforced": ALWAYS,
        **settings,
    }
    return {"name": f"{HTTP}.local_ratelimit", "typed_config": limit}


def bucket(quota: Quota) -> dict:
    return {
        "max_tokens": quota.burst,
        "tokens_per_fill": quota.tokens,
        "fill_interval": f"{quota.seconds}s",
    }


ALONE = Gateway("Envoy", Store.NONE, alone)
TLS = Gateway("Envoy", Store.NONE, with_tls, has_tls=True)
LOCAL_RATELIMIT = Gateway("Envoy, `local_ratelimit`", Store.MEMORY, local_ratelimit)
