"""Tokens: where a connection gets its token from, and how an account gets one from ``POST /v1/auth``."""

from __future__ import annotations

import asyncio
import base64
import inspect
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable

import aiohttp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moorage.client.errors import Refused, Unreachable

Token = str | Callable[[], str | Awaitable[str]]


class TokenSource:
    """A fixed token, or a function whose last token is kept until it is said to be invalid."""

    def __init__(self, token: Token, timeout: float) -> None:
        """Raises :class:`TypeError` for what is neither."""
        if not isinstance(token, str) and not callable(token):
            kind = "None" if token is None else type(token).__name__
            raise TypeError(f"token must be a str or a function that returns one, not {kind}")
        self._token = token
        self._timeout = timeout
        self._kept: str | None = None

    async def get(self) -> str:
        """Raises :class:`Unreachable` if the function raises or takes longer than the bound."""
        if isinstance(self._token, str):
            return self._token
        if self._kept is None:
            try:
                async with asyncio.timeout(self._timeout):
                    made = self._token()
                    token = await made if inspect.isawaitable(made) else made
                    if not isinstance(token, str):
                        raise TypeError(f"the function returned {type(token).__name__}, not str")
                    self._kept = token
            except Exception as error:
                raise Unreachable(f"no token: {type(error).__name__}: {error}") from error
        return self._kept

    def renew(self) -> bool:
        """The token was refused: True if another one can be had."""
        self._kept = None
        return not isinstance(self._token, str)


async def sign_in(
    url: str,
    private_key: Ed25519PrivateKey | bytes,
    *,
    timeout: float = 10.0,
    tls: ssl.SSLContext | None = None,
) -> str:
    """Sign in at ``POST {url}/v1/auth`` and return the token. The account is the public key.

    ``private_key``: an Ed25519 key or its 32 seed bytes. The signed challenge starts with the epoch
    milliseconds, which servers that limit its age demand. Raises :class:`Refused` (401, 422),
    :class:`Unreachable` (anything that may pass: no answer within ``timeout`` seconds, 429, 5xx)."""
    key = Ed25519PrivateKey.from_private_bytes(private_key) if isinstance(private_key, bytes) else private_key
    challenge = f"{int(time.time() * 1000)}:{secrets.token_hex(16)}".encode()
    parts = {
        "publicKey": key.public_key().public_bytes_raw(),
        "challenge": challenge,
        "signature": key.sign(challenge),
    }
    body = {name: base64.b64encode(value).decode() for name, value in parts.items()}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as http,
            http.post(
                f"{url.rstrip('/')}/v1/auth", json=body, ssl=tls if tls is not None else True
            ) as response,
        ):
            answer = await response.json(content_type=None)
            status = response.status
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise Unreachable(f"cannot sign in: {type(error).__name__}: {error}") from error
    fields = answer if isinstance(answer, dict) else {}
    token = fields.get("token")
    if status == 200 and isinstance(token, str):
        return token
    reason = str(fields.get("error") or f"HTTP {status}")
    if status in (429, 200) or status >= 500:
        raise Unreachable(f"cannot sign in: {reason}")
    raise Refused(reason)
