"""Keys of an outside issuer: fetched in the background, kept through outages, never more often than
allowed."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from moorage.errors import ConfigurationError

log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 5.0
"""Bound of one fetch. A handshake with an unknown key id waits at most this long."""

FETCH_MAX_BYTES = 262_144
"""Largest key set read; real ones have a few kilobytes."""

KEYS_MAX = 64
"""Keys kept of one set: a token without a key id is tried against each, so the number is bounded."""

REFETCH_MIN_MS = 10_000
"""Least distance of two fetches: tokens with invented key ids must not become a load on the issuer."""

RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
"""Pause after a failed background fetch, doubling."""


@dataclass(frozen=True, slots=True)
class Key:
    """One usable public key: ``alg`` is what it verifies (RS256, ES256 or EdDSA), whatever a token says."""

    kid: str | None
    alg: str
    public: Any


def _algorithm(public: object) -> str | None:
    if isinstance(public, RSAPublicKey):
        return "RS256" if public.key_size >= 2048 else None
    if isinstance(public, EllipticCurvePublicKey):
        return "ES256" if isinstance(public.curve, SECP256R1) else None
    return "EdDSA" if isinstance(public, Ed25519PublicKey) else None


def parse(document: object) -> list[Key]:
    """Usable keys of a JWKS document; others (encryption, other types, damaged) are left out.

    Raises ValueError when it is no key set at all.
    """
    keys = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(keys, list):
        raise ValueError("no key set")
    found = []
    for item in keys[:KEYS_MAX]:
        # A private or a symmetric key in a published set is a mistake that must not be made use of.
        if not isinstance(item, Mapping) or item.get("use", "sig") != "sig" or "d" in item or "k" in item:
            continue
        try:
            public = jwt.PyJWK.from_dict(dict(item)).key
        except Exception:  # the library raises KeyError, TypeError and others on damaged keys
            continue
        alg, kid = _algorithm(public), item.get("kid")
        if alg and item.get("alg", alg) == alg:
            found.append(Key(kid if isinstance(kid, str) else None, alg, public))
    return found


def fetch(url: str) -> object:
    """The JSON document at ``url``, bounded in time and size. Blocking. Raises OSError or ValueError."""
    end = time.monotonic() + FETCH_TIMEOUT_S
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    parts, size = [], 0
    with urllib.request.urlopen(request, timeout=FETCH_TIMEOUT_S) as response:
        while part := response.read1(65536):
            size += len(part)
            if size > FETCH_MAX_BYTES or time.monotonic() > end:
                raise ValueError("key set too large or too slow")
            parts.append(part)
    return json.loads(b"".join(parts))


class KeySet:
    """The keys at ``url``. A failed fetch keeps the known ones; a good one replaces them.

    ``on_change`` is called after each good fetch, so that what was verified by keys now gone can be
    forgotten.
    """

    def __init__(
        self,
        url: str,
        *,
        cache_ms: int,
        refetch_min_ms: int = REFETCH_MIN_MS,
        load: Callable[[str], object] = fetch,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigurationError("MOORAGE_JWKS_URL must start with http:// or https://")
        self._url = url
        self._cache_s = cache_ms / 1000
        self._refetch_min_s = refetch_min_ms / 1000
        self._load = load
        self._keys: list[Key] = []
        self._fetching: asyncio.Task[bool] | None = None
        self._last_fetch = float("-inf")
        self._loop_task: asyncio.Task[None] | None = None
        self.on_change: Callable[[], None] = lambda: None

    def candidates(self, alg: str, kid: str | None) -> list[Key]:
        """Known keys that may have signed a token with this header."""
        return [key for key in self._keys if key.alg == alg and (kid is None or key.kid == kid)]

    async def start(self) -> None:
        """Begin fetching in the background; returns at once."""
        self._loop_task = asyncio.create_task(self._keep_fresh(), name="jwks")

    async def stop(self) -> None:
        """End the background work. A fetch already in its thread ends by its own bound."""
        for task in (self._loop_task, self._fetching):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def refresh(self) -> bool:
        """Fetch anew unless that was done a moment ago; all who ask meanwhile share one fetch.

        Returns whether a fetch ended well. Never raises for the network; bounded by :data:`FETCH_TIMEOUT_S`.
        """
        if self._fetching is None or self._fetching.done():
            now = time.monotonic()
            if now - self._last_fetch < self._refetch_min_s:
                return False
            self._last_fetch = now
            self._fetching = asyncio.create_task(self._fetch(), name="jwks fetch")
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                return await asyncio.shield(self._fetching)
        except TimeoutError:
            return False

    async def _fetch(self) -> bool:
        try:
            keys = parse(await asyncio.to_thread(self._load, self._url))
        except (OSError, ValueError, RecursionError) as error:
            log.warning(
                "outside keys not fetched (%s); %d known ones stay", type(error).__name__, len(self._keys)
            )
            return False
        self._keys = keys
        self.on_change()
        return True

    async def _keep_fresh(self) -> None:
        pause = RETRY_MIN_S
        while True:
            self._last_fetch = float("-inf")
            if await self.refresh():
                pause = RETRY_MIN_S
                await asyncio.sleep(self._cache_s)
            else:
                await asyncio.sleep(min(pause, self._cache_s))
                pause = min(pause * 2, RETRY_MAX_S)
