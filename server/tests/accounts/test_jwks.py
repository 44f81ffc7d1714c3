from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from moorage.accounts.jwks import FETCH_MAX_BYTES, KeySet, fetch, parse
from moorage.accounts.tokens import InvalidToken, Tokens, UnknownKey
from moorage.errors import ConfigurationError
from moorage.settings import load

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
NEW = ed25519.Ed25519PrivateKey.generate()
WEAK = rsa.generate_private_key(65537, 1024)
SECRET = "s" * 40
ALGORITHMS = {
    "RS256": jwt.algorithms.RSAAlgorithm,
    "ES256": jwt.algorithms.ECAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}


def jwk(alg: str, key: Any, kid: str | None) -> dict[str, Any]:
    made: dict[str, Any] = ALGORITHMS[alg].to_jwk(key.public_key(), as_dict=True)
    return made | ({"kid": kid} if kid else {})


class Issuer:
    """A JWKS server on a port of its own."""

    def __init__(self) -> None:
        issuer = self
        self.status = 200
        self.asked = 0
        self.body = b""
        self.publish(jwk("RS256", RSA, "r"), jwk("ES256", EC, "e"), jwk("EdDSA", ED, "d"))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(issuer.status)
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def publish(self, *keys: dict[str, Any]) -> None:
        self.body = json.dumps({"keys": keys}).encode()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.stop()


def make(issuer: Issuer, refetch_min_ms: int = 0) -> Tokens:
    settings = load(
        secret_key=SECRET, jwks_url=issuer.url, jwks_issuer="https://idp", jwks_audience="moorage"
    )
    return Tokens(settings, keys=KeySet(issuer.url, cache_ms=600_000, refetch_min_ms=refetch_min_ms))


def sign(alg: str, key: Any, kid: str | None, **claims: Any) -> str:
    body = {"sub": "user|1", "iss": "https://idp", "aud": "moorage", "exp": 2**40, **claims}
    return jwt.encode(
        {k: v for k, v in body.items() if v is not None},
        key,
        algorithm=alg,
        headers={"kid": kid} if kid else {},
    )


@pytest.mark.parametrize(("alg", "key", "kid"), [("RS256", RSA, "r"), ("ES256", EC, "e"), ("EdDSA", ED, "d")])
async def test_tokens_of_the_outside_issuer(issuer: Issuer, alg: str, key: Any, kid: str) -> None:
    tokens = make(issuer)
    assert await tokens.verify_or_fetch(sign(alg, key, kid)) == "user|1"
    assert tokens.verify(sign(alg, key, None)) == "user|1"
    assert tokens.verify(tokens.issue("ours")) == "ours"
    assert issuer.asked == 1


async def test_the_first_fetch_is_in_the_background(issuer: Issuer, until: Any) -> None:
    tokens = make(issuer)
    await tokens.start()

    def known() -> bool:
        try:
            return tokens.verify(sign("EdDSA", ED, "d")) == "user|1"
        except UnknownKey:
            return False

    try:
        await until(known)
    finally:
        await tokens.stop()


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other"}, {"iss": None}, {"iss": "moorage"}, {"aud": "other"}, {"aud": None}, {"exp": 1000},
        {"exp": None}, {"sub": None}, {"sub": ""}, {"sub": "x" * 300}, {"nbf": 2**40},
        {"sub": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
    ],
)  # fmt: skip
async def test_wrong_claims_are_refused(issuer: Issuer, claims: dict[str, Any]) -> None:
    tokens = make(issuer)
    with pytest.raises(InvalidToken):
        await tokens.verify_or_fetch(sign("EdDSA", ED, "d", **claims))


async def test_algorithms_cannot_be_confused(issuer: Issuer) -> None:
    tokens = make(issuer)
    await tokens.verify_or_fetch(sign("RS256", RSA, "r"))
    public = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def hs256(key: bytes, header: dict[str, str], issuer: str) -> str:
        def part(value: dict[str, Any]) -> bytes:
            return jwt.utils.base64url_encode(json.dumps(value).encode())

        claims = {"sub": "acc", "iss": issuer, "aud": "moorage", "exp": 2**40}
        text = part(header) + b"." + part(claims)
        return (text + b"." + jwt.utils.base64url_encode(hmac.digest(key, text, hashlib.sha256))).decode()

    hostile = [
        # The public key as HMAC secret, with and without its key id, as either issuer.
        *(
            hs256(public, {"alg": "HS256", "kid": kid}, iss)
            for kid in ("r", "x")
            for iss in ("https://idp", "moorage")
        ),
        # Our secret under a name that leads to the public keys.
        hs256(SECRET.encode(), {"alg": "RS256", "kid": "r"}, "https://idp"),
        # Our own secret signs only in our own name.
        hs256(SECRET.encode(), {"alg": "HS256"}, "https://idp"),
        # A key under the id of another type, a foreign key under a known id.
        sign("EdDSA", ED, "r"),
        sign("EdDSA", NEW, "d"),
        sign("PS256", RSA, "r"),
        sign("RS512", RSA, "r"),
        sign("EdDSA", ED, "d", iss="moorage"),
    ]
    for token in hostile:
        with pytest.raises(InvalidToken):
            await tokens.verify_or_fetch(token)


async def test_an_unknown_key_is_fetched_once_and_not_too_often(issuer: Issuer) -> None:
    tokens = make(issuer, refetch_min_ms=600_000)
    issuer.publish(jwk("EdDSA", NEW, "n"))
    results = await asyncio.gather(
        *(
            tokens.verify_or_fetch(sign("EdDSA", key, kid))
            for key, kid in [(NEW, "n"), (ED, "d")]
            for _ in range(5)
        ),
        return_exceptions=True,
    )
    assert results[:5] == ["user|1"] * 5
    assert all(isinstance(result, InvalidToken) for result in results[5:])
    for n in range(20):
        with pytest.raises(InvalidToken):
            await tokens.verify_or_fetch(sign("EdDSA", ED, f"invented {n}"))
    assert issuer.asked == 1


async def test_a_rotated_key_ends_what_it_signed(issuer: Issuer) -> None:
    tokens = make(issuer)
    old = sign("EdDSA", ED, "d")
    assert await tokens.verify_or_fetch(old) == "user|1"
    issuer.publish(jwk("EdDSA", NEW, "n"))
    assert await tokens.verify_or_fetch(sign("EdDSA", NEW, "n")) == "user|1"
    with pytest.raises(InvalidToken):
        tokens.verify(old)


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b'{"keys": 7}', b"{" * 5000, b"[" * 100_000, b"x" * (FETCH_MAX_BYTES + 1)]
)
async def test_an_outage_keeps_the_known_keys(issuer: Issuer, damage: bytes) -> None:
    tokens = make(issuer)
    assert await tokens.verify_or_fetch(sign("EdDSA", ED, "d", n=1)) == "user|1"
    issuer.body = damage
    with pytest.raises(InvalidToken):
        await tokens.verify_or_fetch(sign("EdDSA", NEW, "n"))
    issuer.status = 500
    with pytest.raises(InvalidToken):
        await tokens.verify_or_fetch(sign("EdDSA", NEW, "n"))
    assert issuer.asked == 3
    assert tokens.verify(sign("EdDSA", ED, "d", n=2)) == "user|1"


def test_only_usable_public_signature_keys_are_taken() -> None:
    good = jwk("EdDSA", ED, "d")
    keys = parse(
        {
            "keys": [
                good,
                {**good, "use": "enc"},
                {**good, "alg": "RS256"},
                {"kty": "oct", "k": "c2VjcmV0", "kid": "h", "alg": "HS256"},
                jwt.algorithms.OKPAlgorithm.to_jwk(NEW, as_dict=True),
                jwk("RS256", WEAK, "weak"),
                jwk("ES256", ec.generate_private_key(ec.SECP384R1()), "p384"),
                {"kty": "RSA"},
                {"kty": 5},
                {},
                None,
                "x",
            ]
        }
    )
    assert [(key.kid, key.alg) for key in keys] == [("d", "EdDSA")]
    for document in (None, [], {}, {"keys": {}}):
        with pytest.raises(ValueError):
            parse(document)


def test_settings_that_would_accept_too_much_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="MOORAGE_JWKS_ISSUER"):
        Tokens(load(secret_key=SECRET, jwks_url="http://127.0.0.1:1/"))
    with pytest.raises(ConfigurationError, match="MOORAGE_JWKS_URL"):
        Tokens(load(secret_key=SECRET, jwks_url="file:///etc/passwd", jwks_issuer="x"))


def test_a_fetch_is_bounded_in_size(issuer: Issuer) -> None:
    issuer.body = b" " * (FETCH_MAX_BYTES + 1)
    with pytest.raises(ValueError, match="too large"):
        fetch(issuer.url)
