"""Bare Pingora, the baseline of all comparisons."""

from ..processes import BUILT
from .gateway import Gateway, Site, Store


def command(site: Site) -> list[str]:
    program = f"{BUILT}/bare_pingora"
    return [program, f"127.0.0.1:{site.port}", f"127.0.0.1:{site.upstream}"]


BARE = Gateway("bare Pingora", Store.NONE, command)
