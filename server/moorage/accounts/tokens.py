"""Tokens: ours (HS256 with ``SECRET_KEY``) and, where configured, those of an outside issuer (its JWKS).

The algorithm in a token's header only chooses the door: HS256 is tried with our secret and nothing else,
RS256 / ES256 / EdDSA with public keys of that very type and nothing else. All other names, ``none`` too, are
refused.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jwt
from jwt.types import Options

from moorage.accounts.jwks import KeySet
from moorage.accounts.names import is_account, outside_account
from moorage.errors import ConfigurationError, MoorageError
from moorage.settings import Settings

TOKEN_MAX_CHARS = 16_384
"""Longest token looked at: HTTP servers take headers of 8 to 16 kB, so a longer one cannot be meant."""

CACHE_MAX = 20_000
"""Verified tokens remembered. At some 500 bytes each this is 10 MB, more than the clients of one replica."""

OUTSIDE_ALGORITHMS = ("RS256", "ES256", "EdDSA")


class InvalidToken(MoorageError):
    """The token proves nothing: malformed, forged, expired, of another issuer. Never says which, nor the
    token."""

    def __init__(self) -> None:
        super().__init__("Invalid token")


class UnknownKey(InvalidToken):
    """Not provable with the keys known now; fetching the issuer's keys anew may help."""


class Tokens:
    """Issues and verifies tokens. ``now`` gives epoch seconds."""

    def __init__(
        self, settings: Settings, *, keys: KeySet | None = None, now: Callable[[], float] = time.time
    ) -> None:
        if settings.secret_key is None:
            raise ConfigurationError("SECRET_KEY is required to sign tokens")
        self._secret = settings.secret_key
        self._issuer = settings.token_issuer
        self._ttl_s = settings.token_ttl_ms / 1000
        self._outside_issuer = settings.jwks_issuer
        self._outside_audience = settings.jwks_audience
        self._outside_keep_s = settings.jwks_cache_ms / 1000
        self._now = now
        self._cache: OrderedDict[str, tuple[str, float]] = OrderedDict()
        if keys is None and settings.jwks_url:
            keys = KeySet(settings.jwks_url, cache_ms=settings.jwks_cache_ms)
        if keys is not None:
            if not settings.jwks_issuer:
                raise ConfigurationError("MOORAGE_JWKS_ISSUER is required while MOORAGE_JWKS_URL is set")
            keys.on_change = self._cache.clear
        self._keys = keys

    async def start(self) -> None:
        """Begin to fetch the outside issuer's keys, if there is one; returns at once."""
        if self._keys is not None:
            await self._keys.start()

    async def stop(self) -> None:
        """End the fetching."""
        if self._keys is not None:
            await self._keys.stop()

    def issue(self, account: str, ttl_ms: int | None = None) -> str:
        """A token for ``account``, valid ``ttl_ms`` (default: the setting). Raises ValueError on a bad
        name."""
        if not is_account(account):
            raise ValueError(
                "an account has 1 to 256 characters, no colon, brace, white space or control character"
            )
        now = self._now()
        life = self._ttl_s if ttl_ms is None else ttl_ms / 1000
        claims = {"sub": account, "iss": self._issuer, "iat": int(now), "exp": int(now + life)}
        return jwt.encode(claims, self._secret, algorithm="HS256")

    def verify(self, token: object) -> str:
        """The account that ``token`` proves, with the keys known now; never waits.

        Raises :class:`InvalidToken`.
        """
        if not isinstance(token, str) or not token or len(token) > TOKEN_MAX_CHARS:
            raise InvalidToken
        now = self._now()
        known = self._cache.get(token)
        if known is not None:
            if now < known[1]:
                self._cache.move_to_end(token)
                return known[0]
            del self._cache[token]
        try:
            account, until = self._check(token, now)
        except MoorageError:
            raise
        except Exception:  # whatever a library makes of hostile bytes, it is an invalid token
            raise InvalidToken from None
        self._cache[token] = (account, until)
        if len(self._cache) > CACHE_MAX:
            self._cache.popitem(last=False)
        return account

    async def verify_or_fetch(self, token: object) -> str:
        """As :meth:`verify`; with a key id not known, the issuer's keys are fetched anew first, if that is
        due.

        Waits at most :data:`~moorage.accounts.jwks.FETCH_TIMEOUT_S`. Raises :class:`InvalidToken`.
        """
        try:
            return self.verify(token)
        except UnknownKey:
            if self._keys is None or not await self._keys.refresh():
                raise InvalidToken from None
            return self.verify(token)

    def _check(self, token: str, now: float) -> tuple[str, float]:
        """``(account, trusted until [epoch s])``."""
        header = jwt.get_unverified_header(token)
        alg, kid = header.get("alg"), header.get("kid")
        if alg == "HS256":
            claims = self._decode(token, self._secret, "HS256", self._issuer, None)
            if not is_account(claims["sub"]):
                raise InvalidToken
            return claims["sub"], self._expiry(claims, now)
        if self._keys is None or alg not in OUTSIDE_ALGORITHMS:
            raise InvalidToken
        candidates = self._keys.candidates(alg, kid)
        if not candidates:
            raise UnknownKey
        for key in candidates:
            try:
                claims = self._decode(
                    token, key.public, alg, self._outside_issuer, self._outside_audience or None
                )
            except jwt.InvalidSignatureError:
                continue
            # Kept no longer than the keys: a key withdrawn by the issuer ends what it signed.
            until = min(self._expiry(claims, now), now + self._outside_keep_s)
            return outside_account(claims["sub"]), until
        raise InvalidToken

    @staticmethod
    def _decode(token: str, key: Any, alg: str, issuer: str, audience: str | None) -> dict[str, Any]:
        # iat is not compared with the clock: a token issued by a replica whose clock is a second ahead is
        # good. exp is compared in _expiry, with our own clock.
        options: Options = {
            "require": ["sub", "iss", "exp"],
            "verify_iat": False,
            "verify_exp": False,
            "verify_aud": audience is not None,
        }
        return jwt.decode(token, key, algorithms=[alg], issuer=issuer, audience=audience, options=options)

    @staticmethod
    def _expiry(claims: dict[str, Any], now: float) -> float:
        expires = claims["exp"]
        if isinstance(expires, bool) or not isinstance(expires, int | float) or not now < expires:
            raise InvalidToken
        return float(expires)
