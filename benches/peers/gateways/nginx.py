"""nginx: as a plain proxy, with `limit_req`, and with a Redis script called by Lua."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from .gateway import KEPT, Gateway, Place, Quota, Site, Store

MODULES = "/usr/lib/nginx/modules"
# The usual token bucket script; method (a) of redis_three_ways.
BUCKET = Path(__file__).parents[2] / "redis_three_ways" / "bucket.lua"


def command(site: Place, modules: str, zone: str, limit: str, tls: str = "") -> list[str]:
    name = f"{site.folder}/{site.port}"
    Path(f"{name}.conf").write_text(
        f"""{modules}
daemon off; worker_processes 1; pid {name}.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000;
    {zone}
    upstream api {{
        server 127.0.0.1:{site.upstream};
        keepalive {KEPT}; keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{site.port} {'ssl http2' if tls else ''} backlog=1024;
        {tls}
        location / {{
            {limit}
            proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_max_temp_file_size 0;
        }}
    }}
}}
"""
    )
    return ["nginx", "-p", str(site.folder), "-c", f"{name}.conf", "-e", "stderr"]


def alone(site: Site) -> list[str]:
    return command(site, "", "", "")


def tls(site: Site) -> list[str]:
    files = f"ssl_certificate {site.certificate.cert}; ssl_certificate_key {site.certificate.key};"
    return command(site, "", "", "", f"{files} ssl_protocols TLSv1.2 TLSv1.3;")


def limit_req(site: Site) -> list[str]:
    return with_zones(site, [Zone("key", "http_x_api_key", site.quota)])


@dataclass(frozen=True)
class Zone:
    """A limit for each value of a variable."""

    name: str
    variable: str
    quota: Quota

    @property
    def declaration(self) -> str:
        rate = f"{self.quota.tokens}r/s" if self.quota.seconds == 1 else "1r/m"
        return f"limit_req_zone ${self.variable} zone={self.name}:64m rate={rate};\n"

    @property
    def limit(self) -> str:
        # nginx does not count the current request as part of the burst.
        burst = self.quota.burst - 1
        return f"limit_req zone={self.name}{f' burst={burst} nodelay' if burst else ''};\n"


def with_zones(site: Place, zones: list[Zone], settings: str = "") -> list[str]:
    """nginx with a limit for each zone. The settings are those of the location."""
    declared = "".join(zone.declaration for zone in zones)
    limits = "".join(zone.limit for zone in zones)
    return command(site, "", f"{declared}limit_req_status 429;", limits + settings)


def evalsha(site: Site) -> list[str]:
    script = BUCKET.read_text()
    site.redis.ask("SCRIPT", "LOAD", script)
    return with_lua(site, lua(site.redis.port, sha1(script), site.quota))


def with_lua(site: Place, lua: str, settings: str = "") -> list[str]:
    """nginx that decides on each request by this code. The settings are those of the location."""
    modules = ("ndk_http_module", "ngx_http_lua_module")
    loaded = "".join(f"load_module {MODULES}/{module}.so;\n" for module in modules)
    return command(site, loaded, "", f"access_by_lua_block {{\n{lua}}}{settings}")


def lua(port: int, sha: str, quota: Quota) -> str:
    rate = quota.tokens / quota.seconds
    return f"""
local redis = require("nginx.redis"):new()
local connected = redis:connect("127.0.0.1", {port})
local passed = connected
    and redis:evalsha("{sha}", 1, "bucket:" .. ngx.var.http_x_api_key, {rate}, {quota.burst})
if not passed then return ngx.exit(500) end
redis:set_keepalive(60000, {KEPT})
if passed == 0 then return ngx.exit(429) end
"""


def sha1(script: str) -> str:
    return hashlib.sha1(script.encode()).hexdigest()


ALONE = Gateway("nginx", Store.NONE, alone)
TLS = Gateway("nginx", Store.NONE, tls, has_tls=True)
LIMIT_REQ = Gateway("nginx, `limit_req`", Store.MEMORY, limit_req)
EVALSHA = Gateway("nginx, Lua, one EVALSHA a request", Store.REDIS, evalsha)
