"""What Schemathesis sends as `application/toml`: files that are valid, nearly so, or not at all."""

from hypothesis import strategies
import schemathesis

VALID = """[plans.free]
[keys.acme]
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
plan = "free"
[upstreams.api]
servers = ["demo"]
[routes.all]
path = "/*"
upstream = "api"
"""

cut = strategies.integers(0, len(VALID)).map(lambda end: VALID[:end])
followed = strategies.text(max_size=200).map(lambda text: VALID + text)
schemathesis.openapi.media_type(
    "application/toml",
    strategies.one_of(strategies.just(VALID), cut, followed, strategies.text(max_size=200))
    .map(lambda text: text.encode("utf-8", "surrogatepass")),
)
