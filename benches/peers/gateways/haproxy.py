"""HAProxy: as a plain proxy, and with a stick table that counts all requests of the last second."""

from .gateway import SHUT, Gateway, Place, Site, Store


def command(site: Place, limit: str, tls: str = "", sections: str = "") -> list[str]:
    file = site.folder / f"{site.port}.cfg"
    file.write_text(
        f"""global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
{sections}
frontend clients
    bind 127.0.0.1:{site.port} {tls}
{limit}
    default_backend api
backend api
    server api 127.0.0.1:{site.upstream}
"""
    )
    return ["haproxy", "-db", "-f", str(file)]


def alone(site: Site) -> list[str]:
    return command(site, "")


def with_tls(site: Site) -> list[str]:
    return command(site, "", f"ssl crt {site.certificate.both} alpn h2,http/1.1")


def stick_table(site: Site) -> list[str]:
    most = 0 if site.quota == SHUT else site.quota.tokens
    return command(
        site,
        f"""    stick-table type string len 32 size 200k expire 60s store http_req_rate(1s)
    http-request track-sc0 req.hdr(x-api-key)
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {most} }}""",
    )


ALONE = Gateway("HAProxy", Store.NONE, alone)
TLS = Gateway("HAProxy", Store.NONE, with_tls, has_tls=True)
STICK_TABLE = Gateway("HAProxy, stick table", Store.MEMORY, stick_table)
