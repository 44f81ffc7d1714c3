"""Names of accounts: the public key, or the subject of an outside token made safe.

A name is part of room names (``user:<account>:…``) and of Redis keys (``{<account>}``), so it holds no colon,
no braces and no white space: else one account's name could read as another account's room.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import quote

KEY_BYTES = 32
"""An Ed25519 public key (RFC 8032)."""

NAME_MAX = 256
"""Longest name of an account, characters: subjects of known issuers stay far below (RFC: OpenID Connect,
255)."""

_NAME = re.compile(r"[^\x00-\x20\x7f-\xa0:{}\ud800-\udfff]{1,256}")
_SAFE = "@|/+=,;!$&'()*~. -_"


def decode_base64(text: str) -> bytes:
    """Bytes of standard base64, padding optional. Raises ValueError on anything else."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError, UnicodeError):
        raise ValueError("not base64") from None


def key_account(public_key: str) -> str:
    """The account of a base64 public key: the key encoded anew, so that every spelling is one account.

    Raises ValueError unless it decodes to 32 bytes.
    """
    raw = decode_base64(public_key)
    if len(raw) != KEY_BYTES:
        raise ValueError("not a public key of 32 bytes")
    return base64.b64encode(raw).decode()


def is_account(name: object) -> bool:
    """Whether ``name`` may be an account: 1 to 256 characters, no colon, brace, white space or control."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def outside_account(subject: object) -> str:
    """The account of an outside token's ``sub``: what may not stand in a name is percent-encoded.

    Raises ValueError on a subject that is no text, is too long, or looks like a public key: an outside issuer
    must not be able to name an account that belongs to the holder of a key.
    """
    if not isinstance(subject, str) or not subject:
        raise ValueError("no subject")
    try:
        name = quote(subject, safe=_SAFE.replace(" ", ""))
    except UnicodeError:
        raise ValueError("subject is no text") from None
    if not is_account(name):
        raise ValueError("subject too long")
    try:
        key_account(subject)
    except ValueError:
        return name
    raise ValueError("subject is a public key")
