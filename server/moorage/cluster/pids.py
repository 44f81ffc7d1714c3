"""Private ids of connection state recovery: what a client hands back to be the same socket again. No I/O.

A private id is signed and holds all that any replica needs, so none of it is stored: the socket's id, its
namespace, where its stream stood when it connected, and a keyed digest of who connected. Nothing in it is secret
(the digest tells nothing without the key) and a client that changes it gets a new socket instead.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

import msgspec

PID_MAX_CHARS = 1024
"""Longest text looked at. An id of ours has about 150 characters plus 4/3 of the namespace's name."""

VERSION = "1"
_MAC_BYTES = 16
_DIGEST_BYTES = 16


class Pid(NamedTuple):
    """``node``: where it connected. ``start``: the last stream entry before that (``b"<ms>-<n>"``)."""

    sid: str
    namespace: str
    node: str
    start: bytes
    digest: bytes


class _Content(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    sid: str
    namespace: str
    node: str
    start: bytes
    digest: bytes


class Pids:
    """Issues and reads private ids. ``secret`` must be equal on all replicas; another key is derived from it."""

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), b"moorage: private ids of recovery", "sha256")

    def digest(self, identity: str) -> bytes:
        """What an id holds of an identity."""
        return hmac.digest(self._key, b"identity:" + identity.encode("utf-8", "replace"), "sha256")[
            :_DIGEST_BYTES
        ]

    def issue(self, sid: str, namespace: str, node: str, start: bytes, identity: str) -> str:
        """A new private id."""
        content = _Content(sid, namespace, node, start, self.digest(identity))
        packed = msgspec.msgpack.encode(content)
        return f"{VERSION}.{base64.urlsafe_b64encode(self._mac(packed) + packed).rstrip(b'=').decode()}"

    def read(self, text: object) -> Pid | None:
        """What is in an id of ours; None for anything else."""
        if not isinstance(text, str) or len(text) > PID_MAX_CHARS or not text.isascii():
            return None
        version, dot, body = text.partition(".")
        if version != VERSION or not dot:
            return None
        try:
            raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        mac, packed = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(packed)):
            return None
        try:
            content = msgspec.msgpack.decode(packed, type=_Content)
        except msgspec.MsgspecError:
            return None
        return Pid(content.sid, content.namespace, content.node, content.start, content.digest)

    def _mac(self, packed: bytes) -> bytes:
        return hmac.digest(self._key, b"pid:" + packed, hashlib.sha256)[:_MAC_BYTES]
