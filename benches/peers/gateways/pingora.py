"""Bare Pingora, the baseline of all comparisons."""

import os

from .gateway import Gateway, Site, Store

BUILT = os.path.abspath(os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release"))


def command(site: Site) -> list[str]:
    program = f"{BUILT}/bare_pingora"
    return [program, f"127.0.0.1:{site.port}", f"127.0.0.1:{site.upstream}"]


BARE = Gateway("bare Pingora", Store.NONE, command)
