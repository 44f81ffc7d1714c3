"""Sign-in: a detached Ed25519 signature of a challenge proves that the client holds the account's key."""

from __future__ import annotations

import re
import time

from cryptography.exceptions import InvalidSignature as _BadSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from moorage.accounts.names import decode_base64, key_account
from moorage.errors import HttpError

_STAMP = re.compile(rb"\d{1,16}")


class InvalidSignature(HttpError):
    """401 ``Invalid signature``: the same for every reason, so that nothing can be learned from it."""

    def __init__(self) -> None:
        super().__init__(401, "Invalid signature")


def verify_signin(
    public_key: str, challenge: str, signature: str, *, max_age_ms: int = 0, now_ms: int | None = None
) -> str:
    """The account whose key signed ``challenge``; all three are base64, the signature is over the decoded
    bytes.

    With ``max_age_ms`` the decoded challenge must start with its epoch milliseconds in ASCII digits and be at
    most that old (or that far ahead: clocks differ). Raises :class:`InvalidSignature`.
    """
    try:
        account = key_account(public_key)
        message = decode_base64(challenge)
        Ed25519PublicKey.from_public_bytes(decode_base64(account)).verify(decode_base64(signature), message)
    except (ValueError, _BadSignature):
        raise InvalidSignature from None
    if max_age_ms:
        stamp = _STAMP.match(message)
        now = int(time.time() * 1000) if now_ms is None else now_ms
        if stamp is None or abs(now - int(stamp.group())) > max_age_ms:
            raise InvalidSignature
    return account
