"""HAProxy with stick tables, which count what passed, and are sent to the other gateways."""

from peers.gateways.haproxy import command

from ..limits import COST, Limit, Limits
from . import Contender, Member, Reload

# Limits of one request, by default.
COUNTERS = 3


def stick_tables(member: Member) -> list[str]:
    limits = member.limits.all[:COUNTERS]
    ports = enumerate(member.exchange_ports)
    peers = "".join(f"    peer gateway{number} 127.0.0.1:{port}\n" for number, port in ports)
    tables = "".join(map(table, limits))
    tracked = "".join(
        f"    http-request track-sc{number} {key(one)} table {one.name}\n" for number, one in enumerate(limits)
    )
    checks = "".join(check(number, one) for number, one in enumerate(limits))
    # Refused requests are not counted.
    counts = "".join(f"    http-request sc-inc-gpc0({number})\n" for number in range(len(limits)))
    costly = ""
    if member.limits is Limits.COSTS:
        costly = f"    http-request deny deny_status 429 if {{ path /costly }} {{ sc_gpc0_rate(0) gt {limits[0].rate - COST} }}\n"
        counts += "    http-request sc-inc-gpc0(0) if { path /costly }\n" * (COST - 1)
    added = "    http-response set-header X-Changed yes\n" if member.is_changed else ""
    limit = tracked + checks + costly + counts + added
    words = command(member.place, limit, sections=f"peers gateways\n{peers}{tables}")
    return [words[0], "-W", "-L", f"gateway{member.number}", *words[1:]]


def table(limit: Limit) -> str:
    return f"backend {limit.name}\n    stick-table type string len 32 size 10k expire 60s store gpc0,gpc0_rate(1s) peers gateways\n"


def key(limit: Limit) -> str:
    return f"req.hdr({limit.header})" if limit.header else "str(all)"


def check(number: int, limit: Limit) -> str:
    return f"    http-request deny deny_status 429 if {{ sc_gpc0_rate({number}) ge {limit.rate} }}\n"


CONTENDERS = [
    Contender(
        "HAProxy, stick table, `peers`",
        "each sends its counts to the others",
        stick_tables,
        frozenset(Limits),
        reload=Reload.SIGUSR2,
    )
]
