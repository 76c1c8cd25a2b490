"""Envoy with `local_ratelimit`, with a bucket for each value of a header."""

from peers.gateways import Quota
from peers.gateways.envoy import bucket, command, limiter

from ..limits import Limit, Limits
from . import Contender, Member


def local_ratelimit(member: Member) -> list[str]:
    limits = member.limits.all
    by_value = limiter(
        # The bucket for all requests does not limit here.
        Quota(1_000_000, 1, 1_000_000),
        descriptors=[{"entries": [{"key": one.name}], "token_bucket": bucket(one.quota)} for one in limits],
        rate_limits=[{"actions": [action(one)], **addend(member)} for one in limits],
        max_dynamic_descriptors=1000,
    )
    return command(member.place, [by_value])


def action(limit: Limit) -> dict:
    if limit.header is None:
        return {"generic_key": {"descriptor_key": limit.name, "descriptor_value": "all"}}
    return {"request_headers": {"header_name": limit.header, "descriptor_key": limit.name}}


def addend(member: Member) -> dict:
    return {"hits_addend": {"format": "%REQ(X-COST)%"}} if member.limits is Limits.COSTS else {}


CONTENDERS = [Contender("Envoy, `local_ratelimit`", "not at all", local_ratelimit, frozenset(Limits))]
