"""An identity provider whose tokens PyJWT signs. Chooses a port and prints it.

GET /.well-known/openid-configuration   metadata (OpenID Connect Discovery)
GET /jwks.json                          the public keys, or what POST /mode says; prints `jwks`
POST /token                             {"alg", "kid", "header", "claims"}: a signed token
POST /forge                             {"kind", "claims"}: one that must be refused
POST /rotate                            new keys, with other names
POST /mode                              ok, error, garbage, large, hang
POST /opaque                            members of an answer: the token that has it
POST /introspect                        the answer (RFC 7662), to `gate way` with `s:e/c`; prints
                                        `introspect`
"""

import base64
import functools
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote_plus

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

RSA_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Keys:
    """The keys of one generation: `rsa-1`, `p256-1`, …"""

    def __init__(self, number):
        self.number = number
        self.private = {
            f"rsa-{number}": rsa_key,
            f"p256-{number}": ec.generate_private_key(ec.SECP256R1()),
            f"p384-{number}": ec.generate_private_key(ec.SECP384R1()),
            f"ed-{number}": ed25519.Ed25519PrivateKey.generate(),
        }

    def of(self, algorithm):
        kinds = {"ES256": "p256", "ES384": "p384", "EdDSA": "ed"}
        kind = "rsa" if algorithm in RSA_ALGORITHMS else kinds[algorithm]
        return f"{kind}-{self.number}"

    def jwks(self):
        listed = []
        for kid, key in self.private.items():
            kind = {"r": RSAAlgorithm, "p": ECAlgorithm, "e": OKPAlgorithm}[kid[0]]
            listed.append({**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        # Of another curve, which must not spoil the others.
        p521 = ec.generate_private_key(ec.SECP521R1()).public_key()
        return {"keys": [{**json.loads(ECAlgorithm.to_jwk(p521)), "kid": "p521"}, *listed]}


keys = Keys(1)
mode = "ok"
released = threading.Event()
opaque = {}


@functools.cache
def other_key():
    """A key that is not the provider's."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def forged(kind, claims):
    """A token that must be refused."""
    good = jwt.encode(claims, keys.private[keys.of("RS256")], "RS256", {"kid": keys.of("RS256")})
    head, body, signature = good.split(".")
    public = rsa_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    other = other_key()
    kid = keys.of("RS256")
    if kind == "none":
        return jwt.encode(claims, None, "none", {"kid": kid})
    if kind == "hs256_with_public_key":
        signed = text(json.dumps({"alg": "HS256", "kid": kid}).encode()) + "." + body
        return signed + "." + text(hmac.new(public, signed.encode(), hashlib.sha256).digest())
    if kind == "other_key":
        return jwt.encode(claims, other, "RS256", {"kid": kid})
    if kind == "jwk_in_header":
        jwk = json.loads(RSAAlgorithm.to_jwk(other.public_key()))
        return jwt.encode(claims, other, "RS256", {"kid": kid, "jwk": jwk})
    if kind == "jku_in_header":
        return jwt.encode(claims, other, "RS256", {"kid": "x", "jku": "http://127.0.0.1:1/jwks.json"})
    if kind == "kid_of_a_file":
        return jwt.encode(claims, b"\0" * 32, "HS256", {"kid": "../../../../dev/null"})
    if kind == "zero_signature":
        signed = text(json.dumps({"alg": "ES256", "kid": keys.of("ES256")}).encode()) + "." + body
        return signed + "." + text(bytes(64))
    if kind == "no_signature":
        return f"{head}.{body}."
    if kind == "crit":
        return jwt.encode(claims, rsa_key, "RS256", {"kid": kid, "crit": ["exp"]})
    if kind == "other_typ":
        return jwt.encode(claims, rsa_key, "RS256", {"kid": kid, "typ": "logout+jwt"})
    if kind == "nested":
        return jwt.api_jws.encode(good.encode(), rsa_key, "RS256", {"kid": kid, "cty": "JWT"})
    if kind == "trailing":
        return good + ".e30"
    if kind == "padded":
        return good + "=="
    if kind == "repeated_claim":
        claims = json.dumps(claims).replace('"sub"', '"sub": "root", "sub"', 1)
        return jwt.api_jws.encode(claims.encode(), rsa_key, "RS256", {"kid": kid})
    if kind == "changed_claims":
        return f"{head}.{text(json.dumps({**claims, 'sub': 'root'}).encode())}.{signature}"
    if kind == "secret_of_hs256":
        return jwt.encode(claims, b"0" * 32, "HS256", {"kid": kid})
    raise ValueError(kind)


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        issuer = f"http://127.0.0.1:{server.server_port}"
        if self.path == "/.well-known/openid-configuration":
            self.answer({"issuer": issuer, "jwks_uri": f"{issuer}/jwks.json"})
        elif self.path.split("?")[0] == "/jwks.json":
            print("jwks", flush=True)
            if mode == "hang":
                released.wait()
            if mode == "error":
                self.answer({}, 500)
            elif mode == "garbage":
                self.answer("<html>")
            elif mode == "large":
                self.answer({"keys": ["x" * (2 << 20)]})
            else:
                self.answer(keys.jwks())
        else:
            self.answer({}, 404)

    def do_POST(self):
        global keys, mode
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/token":
            order = json.loads(body)
            kid = order.get("kid") or keys.of(order["alg"])
            header = {"kid": kid, **order.get("header", {})}
            key = keys.private.get(kid) or rsa_key
            self.answer(jwt.encode(order["claims"], key, order["alg"], header))
        elif self.path == "/forge":
            order = json.loads(body)
            self.answer(forged(order["kind"], order["claims"]))
        elif self.path == "/rotate":
            keys = Keys(keys.number + 1)
            self.answer({})
        elif self.path == "/opaque":
            token = f"opaque-{len(opaque)}/+="
            opaque[token] = json.loads(body)
            self.answer(token)
        elif self.path == "/introspect":
            self.introspect(body.decode())
        elif self.path == "/mode":
            mode = body.decode()
            if mode != "hang":
                released.set()
            self.answer({})

    def introspect(self, form):
        print("introspect", flush=True)
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        name, secret = (unquote_plus(part) for part in login.split(":"))
        if mode == "hang":
            released.clear()
            released.wait(60)
        if mode == "error" or (name, secret) != ("gate way", "s:e/c"):
            self.answer({}, 500 if mode == "error" else 401)
        elif mode == "garbage":
            self.answer("{")
        elif mode == "large":
            self.answer({"active": True, "sub": "x" * (1 << 20)})
        else:
            [token] = parse_qs(form, strict_parsing=True)["token"]
            self.answer(opaque.get(token, {"active": False}))

    def answer(self, value, status=200):
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
server.daemon_threads = True
print(f"listening on {server.server_port}", flush=True)
server.serve_forever()
