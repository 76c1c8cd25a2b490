"""Envoy with `local_ratelimit`, with a bucket for each value of a header."""

from peers.gateways.envoy import ALWAYS, HTTP, TYPE, command

from ..limits import Limit, Limits
from . import Contender, Member


def local_ratelimit(member: Member) -> list[str]:
    limits = member.limits.all
    limit = {
        "@type": f"{TYPE}.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limit",
        "token_bucket": bucket(1_000_000),
        "filter_enabled": ALWAYS,
        "filter_enforced": ALWAYS,
        "descriptors": [{"entries": [{"key": one.name}], "token_bucket": bucket(one.rate)} for one in limits],
        "rate_limits": [{"actions": [action(one)], **addend(member)} for one in limits],
        "max_dynamic_descriptors": 1000,
    }
    return command(member.site, [{"name": f"{HTTP}.local_ratelimit", "typed_config": limit}])


def bucket(rate: int) -> dict:
    return {"max_tokens": rate, "tokens_per_fill": rate, "fill_interval": "1s"}


def action(limit: Limit) -> dict:
    if limit.header is None:
        return {"generic_key": {"descriptor_key": limit.name, "descriptor_value": "all"}}
    return {"request_headers": {"header_name": limit.header, "descriptor_key": limit.name}}


def addend(member: Member) -> dict:
    return {"hits_addend": {"format": "%REQ(X-COST)%"}} if member.limits is Limits.COSTS else {}


CONTENDERS = [Contender("Envoy, `local_ratelimit`", "not at all", local_ratelimit, frozenset(Limits))]
