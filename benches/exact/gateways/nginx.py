"""nginx with `limit_req`, and with a Redis script that Lua calls for each limit in turn."""

from peers.gateways.gateway import KEPT
from peers.gateways.nginx import BUCKET, Zone, sha1, with_lua, with_zones

from ..limits import Limit, Limits
from . import Contender, Member, Reload

# Milliseconds for one call of Redis. nginx waits for 60 s otherwise.
TIMEOUT = 1000


def variable(limit: Limit) -> str:
    return f"http_{limit.header.replace('-', '_')}" if limit.header else "server_port"


def limit_req(member: Member) -> list[str]:
    zones = [Zone(one.name, variable(one), one.quota) for one in member.limits.all]
    return with_zones(member.place, zones, added(member))


def evalsha(member: Member) -> list[str]:
    port = member.redis_url.rpartition(":")[2]
    limits = "".join(
        f'take("{one.name}:" .. (ngx.var.{variable(one)} or ""), {one.rate}, {one.burst})\n' for one in member.limits.all
    )
    return with_lua(member.place, f"{start(port)}{limits}{END}", added(member))


def start(port: str) -> str:
    """The connection, and the function that takes a token. It gives Redis the script if Redis does not have it."""
    script = BUCKET.read_text()
    return f"""
local script = [==[{script}]==]
local redis = require("nginx.redis"):new()
redis:set_timeout({TIMEOUT})
local connected = redis:connect("127.0.0.1", {port})
if not connected then return ngx.exit(500) end
local function take(name, rate, burst)
    local passed, problem = redis:evalsha("{sha1(script)}", 1, name, rate, burst)
    if not passed and problem and problem:find("NOSCRIPT") then
        passed = redis:eval(script, 1, name, rate, burst)
    end
    if not passed then ngx.exit(500) end
    if passed == 0 then
        redis:set_keepalive(60000, {KEPT})
        ngx.exit(429)
    end
end
"""


END = f"redis:set_keepalive(60000, {KEPT})\n"


def added(member: Member) -> str:
    return "add_header X-Changed yes;" if member.is_changed else ""


BOTH = frozenset({Limits.ONE, Limits.FOUR})
CONTENDERS = [
    Contender("nginx, Lua and Redis", "Redis", evalsha, BOTH, uses_redis=True, reload=Reload.SIGHUP),
    Contender("nginx, `limit_req`", "not at all", limit_req, BOTH, reload=Reload.SIGHUP),
]
