"""Socket.IO packets (protocol v5) to bytes and back. No I/O.

A packet that goes to many sockets is encoded once: :class:`Encoded` holds the RFC 6455 frames that every
WebSocket gets, and separate Engine.IO packets for polling, because ``engineio.Packet`` remembers its first
encoding and would send base64 text to one transport or bytes to the other.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import orjson
from engineio.packet import MESSAGE
from engineio.packet import Packet as EngineIOPacket

from moorage.cluster.names import RESERVED_EVENTS

CONNECT, DISCONNECT, EVENT, ACK, CONNECT_ERROR, BINARY_EVENT, BINARY_ACK = range(7)

MAX_ATTACHMENTS = 64
"""Binary values in one packet of a client. Node's parser stops at 10, older ones do not stop at all."""

TEXT, BINARY = 0x1, 0x2
"""WebSocket opcodes (RFC 6455, section 5.2)."""

_ORJSON_DEPTH = 254
"""orjson encodes no deeper than this; what cannot be encoded again must not come in."""

# type, attachments and a dash, namespace and a comma, ack id; 16 digits stay below 2^53 * 2
_HEAD = re.compile(rb"([0-6])(?:([0-9]{1,4})-)?(?:(/[^,]*),?)?([0-9]{1,16})?")


class Malformed(ValueError):
    """A client's packet breaks the protocol; the text says how and holds nothing the client sent."""


class Packet(NamedTuple):
    """A decoded packet. ``attachments`` is the number of binary messages that must follow it."""

    type: int
    namespace: str
    id: int | None
    data: Any
    attachments: int = 0


class Encoded:
    """One packet, ready for every transport.

    ``wire`` is the frame of the text and those of the attachments in one piece: written at once, nothing can
    come between them.
    """

    __slots__ = ("_polling", "attachments", "text", "wire")

    def __init__(self, text: bytes, attachments: Sequence[bytes] = ()) -> None:
        self.text = text
        self.attachments = attachments
        self.wire = frame(TEXT, b"4" + text)
        if attachments:
            self.wire += b"".join([frame(BINARY, part) for part in attachments])
        self._polling: list[EngineIOPacket] | None = None

    @property
    def polling(self) -> list[EngineIOPacket]:
        """Engine.IO packets for long polling, shared by all polling clients; never encoded otherwise."""
        if self._polling is None:
            self._polling = [
                EngineIOPacket(MESSAGE, part) for part in (self.text.decode(), *self.attachments)
            ]
        return self._polling


def frame(opcode: int, payload: bytes) -> bytes:
    """An unmasked, final WebSocket frame (RFC 6455, section 5.2)."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 65536:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


def arguments(data: Any) -> list[Any]:
    """Arguments of an event from the ``data`` of python-socketio's ``emit``: a tuple is several, None is none."""
    return list(data) if isinstance(data, tuple) else [] if data is None else [data]


def encode(kind: int, namespace: str, ack_id: int | None, data: Any) -> Encoded:
    """Encode a packet; binary values become attachments.

    Raises :class:`ValueError` or :class:`TypeError` for data that JSON cannot hold.
    """
    head = b"" if namespace == "/" else namespace.encode() + b","
    if ack_id is not None:
        head += b"%d" % ack_id
    if data is None:
        return Encoded(b"%d%b" % (kind, head))
    body, attachments = _dump(data)
    if attachments:
        if kind not in (EVENT, ACK):
            raise ValueError("binary values are possible in events and acks only")
        return Encoded(b"%d%d-%b%b" % (kind + 3, len(attachments), head, body), attachments)
    return Encoded(b"%d%b%b" % (kind, head, body))


def decode(raw: bytes, offset: int = 0) -> Packet:
    """Decode and check a client's text packet, which begins at ``offset``. Raises :class:`Malformed`.

    The data of EVENT and ACK is a list; an event's first item is its name, none of :data:`RESERVED_EVENTS`.
    """
    head = _HEAD.match(raw, offset)
    if head is None:
        raise Malformed("unknown packet type")
    kind = int(head[1])
    attachments = 0 if head[2] is None else int(head[2])
    if (head[2] is not None) is not (kind >= BINARY_EVENT):
        raise Malformed("attachments")
    if attachments > MAX_ATTACHMENTS:
        raise Malformed("too many attachments")
    namespace = "/"
    if head[3] is not None:
        try:
            namespace = head[3].decode().partition("?")[0]
        except UnicodeDecodeError:
            raise Malformed("namespace") from None
    ack_id = None if head[4] is None else int(head[4])
    body = raw[head.end() :]
    data = _load(body) if body else None
    if kind in (EVENT, BINARY_EVENT):
        if not isinstance(data, list) or not data or type(data[0]) is not str or data[0] in RESERVED_EVENTS:
            raise Malformed("event")
    elif kind in (ACK, BINARY_ACK):
        if not isinstance(data, list) or ack_id is None:
            raise Malformed("ack")
    elif kind == CONNECT:
        if data is not None and not isinstance(data, dict):
            raise Malformed("connect")
    elif kind == CONNECT_ERROR or data is not None:
        raise Malformed("payload")
    return Packet(kind, namespace, ack_id, data, attachments)


def with_attachments(data: Any, attachments: Sequence[bytes]) -> Any:
    """``data`` with each placeholder replaced by its attachment. Raises :class:`Malformed`."""
    if isinstance(data, list):
        return [with_attachments(item, attachments) for item in data]
    if isinstance(data, dict):
        if data.get("_placeholder") is True:
            number = data.get("num")
            if type(number) is not int or not 0 <= number < len(attachments):
                raise Malformed("placeholder")
            return attachments[number]
        return {key: with_attachments(value, attachments) for key, value in data.items()}
    return data


def _load(body: bytes) -> Any:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        # JSON.stringify writes a lone surrogate as \udxxx, which is JSON but not UTF-8.
        if b"\\u" not in body:
            raise Malformed("json") from None
        try:
            data = json.loads(body.decode(), parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise Malformed("json") from None
    if body.count(b"[") + body.count(b"{") > _ORJSON_DEPTH:
        try:
            orjson.dumps(data)
        except orjson.JSONEncodeError as error:
            if "ecursion" in str(error):
                raise Malformed("nesting") from None
    return data


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _dump(data: Any) -> tuple[bytes, list[bytes]]:
    attachments: list[bytes] = []

    def default(value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            attachments.append(bytes(value))
            return {"_placeholder": True, "num": len(attachments) - 1}
        raise TypeError(f"{type(value).__name__} is not JSON")

    try:
        return orjson.dumps(data, default=default), attachments
    except orjson.JSONEncodeError:
        attachments.clear()
    try:
        return json.dumps(_plain(data), default=default, separators=(",", ":")).encode(), attachments
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _plain(value: Any) -> Any:
    """What orjson does by itself and the standard library does not: NaN and infinity are null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
