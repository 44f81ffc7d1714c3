"""The wire format of ``@socket.io/redis-streams-adapter`` 0.3.x: names, encoding, decoding. No I/O.

Fire-and-forget messages (broadcast, join, leave, disconnect) are stream entries with the text fields ``uid nsp
type data``; ``data`` is JSON, or base64 of msgpack when something in it is binary. Requests and answers are
published, as a msgpack map ``{type, data, uid, nsp}``, on a public channel per namespace and a private one per
node. A date is a string after decoding, as JSON would have it, in either encoding.

Absent is not null in this format: a ``requestId`` of nil asks Node for acks, and a missing ``opts`` or ``packet``
makes Node read the same entry for ever. So encoding omits what is not set and never omits these two.

Decoding never raises: what does not fit is a :class:`Malformed`.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson
import ormsgpack

from moorage.cluster.names import RESERVED_EVENTS
from moorage.cluster.names import namespace_hash as namespace_hash
from moorage.cluster.names import new_uid as new_uid
from moorage.cluster.names import private_channel as private_channel
from moorage.cluster.names import public_channel as public_channel
from moorage.cluster.names import stream_of as stream_of
from moorage.cluster.plain import portable, well_formed, without_dates
from moorage.cluster.sessions import Marker

INITIAL_HEARTBEAT: Final = 1
HEARTBEAT: Final = 2
BROADCAST: Final = 3
SOCKETS_JOIN: Final = 4
SOCKETS_LEAVE: Final = 5
DISCONNECT_SOCKETS: Final = 6
FETCH_SOCKETS: Final = 7
FETCH_SOCKETS_RESPONSE: Final = 8
SERVER_SIDE_EMIT: Final = 9
SERVER_SIDE_EMIT_RESPONSE: Final = 10
BROADCAST_CLIENT_COUNT: Final = 11
BROADCAST_ACK: Final = 12
ADAPTER_CLOSE: Final = 13
MARKER: Final = 64
"""Of connection state recovery (:mod:`moorage.cluster.sessions`); Node's adapters skip types they do not know."""

TAG_FIELD: Final = "n"
"""Further field of an entry that its own sender delivers when it reads it back; others ignore it."""

EMITTER_UID: Final = "emitter"
"""Sender that is no node: Node's emitter, and our counted updates, which every node delivers, the sender too."""

FLEETING: Final = "fleeting"
"""Flag of a broadcast that was delivered without an offset and so must not be delivered again by a recovery."""


_RESERVED = frozenset(name.encode() for name in RESERVED_EVENTS)
_RESERVED_FIRST = bytes({name[0] for name in _RESERVED}) + b"\\"  # any letter may be escaped


# -- bodies --------------------------------------------------------------------------------------------
class Opts(msgspec.Struct):
    """Who is meant: sockets in any of ``rooms`` (none: everybody) and in none of ``except_``."""

    rooms: list[str | int] = []
    except_: list[str | int] = msgspec.field(default_factory=list, name="except")
    flags: dict[str, Any] | None = None

    @property
    def room_names(self) -> list[str]:
        return [str(room) for room in self.rooms]

    @property
    def except_names(self) -> list[str]:
        return [str(room) for room in self.except_]

    def flag(self, name: str) -> Any:
        """Value of a flag, None if it is not set."""
        return self.flags.get(name) if self.flags else None


class _Packet(msgspec.Struct):
    data: msgspec.Raw
    type: int = 2
    id: Any = None


class Broadcast(msgspec.Struct):
    """Type 3. The event and its arguments stay encoded until :meth:`event` is called."""

    packet: _Packet
    opts: Opts
    requestId: Any = None
    packed: bool = False

    def event(self) -> list[Any] | Malformed:
        """``[name, *args]``. Malformed: what a client must not be sent."""
        data = _load(bytes(self.packet.data), self.packed)
        if (
            not isinstance(data, list)
            or not data
            or not isinstance(data[0], str)
            or data[0] in RESERVED_EVENTS
        ):
            return Malformed("packet.data")
        return data

    def json(self) -> bytes | None:
        """``[name, *args]`` as JSON text, not decoded; None where that cannot be had: use :meth:`event`."""
        raw = bytes(self.packet.data)
        if self.packed or not raw.startswith(b'["'):
            return None
        if raw[2:3] in _RESERVED_FIRST:
            name = raw[2 : raw.find(b'"', 2)]
            if name in _RESERVED or b"\\" in name:
                return None
        try:
            raw.decode()  # a client's WebSocket closes on text that is not UTF-8
        except UnicodeDecodeError:
            return None
        return raw

    def ends_with_text(self) -> bool:
        """Whether the last of ``[name, *args]`` is a text."""
        if not self.packed:
            return bytes(self.packet.data).endswith(b'"]')
        data = self.event()
        return isinstance(data, list) and isinstance(data[-1], str)

    @property
    def is_recoverable(self) -> bool:
        """Whether a client that was away gets it afterwards; no volatile ones and none with an ack."""
        if self.requestId is not None or self.packet.id is not None:
            return False
        return not self.opts.flags or not (
            self.opts.flags.get("volatile") is True or self.opts.flags.get(FLEETING) is True
        )


class SocketsRooms(msgspec.Struct):
    """Types 4 and 5: the sockets of ``opts`` join or leave ``rooms``."""

    opts: Opts
    rooms: list[str | int]

    @property
    def room_names(self) -> list[str]:
        return [str(room) for room in self.rooms]


class DisconnectSockets(msgspec.Struct):
    """Type 6; ``close``: the whole connection, not only the namespace."""

    opts: Opts
    close: bool | None = False


class FetchSockets(msgspec.Struct):
    """Type 7."""

    opts: Opts
    requestId: str


class RemoteSocket(msgspec.Struct):
    """A socket as another node tells it."""

    id: str
    rooms: list[str | int] = []
    data: Any = None
    handshake: Any = None


class FetchSocketsResponse(msgspec.Struct):
    """Type 8."""

    requestId: str
    sockets: list[RemoteSocket]


class ServerSideEmit(msgspec.Struct):
    """Type 9: ``[event, *args]``; with a ``requestId`` an answer is wanted."""

    packet: list[Any]
    requestId: Any = None


class ServerSideEmitResponse(msgspec.Struct):
    """Type 10: what a node's handler answered."""

    requestId: str
    packet: Any = None


class BroadcastClientCount(msgspec.Struct):
    """Type 11: how many sockets of a node will ack."""

    requestId: str
    clientCount: int


class BroadcastAck(msgspec.Struct):
    """Type 12: the first argument of one socket's ack. ``args``: all of them, from nodes of ours, if not one."""

    requestId: str
    packet: Any = None
    args: list[Any] | None = None


Body = (
    Broadcast
    | SocketsRooms
    | DisconnectSockets
    | FetchSockets
    | FetchSocketsResponse
    | ServerSideEmit
    | ServerSideEmitResponse
    | BroadcastClientCount
    | BroadcastAck
    | Marker
)

_BODIES: dict[int, type[Body]] = {
    BROADCAST: Broadcast,
    SOCKETS_JOIN: SocketsRooms,
    SOCKETS_LEAVE: SocketsRooms,
    DISCONNECT_SOCKETS: DisconnectSockets,
    FETCH_SOCKETS: FetchSockets,
    FETCH_SOCKETS_RESPONSE: FetchSocketsResponse,
    SERVER_SIDE_EMIT: ServerSideEmit,
    SERVER_SIDE_EMIT_RESPONSE: ServerSideEmitResponse,
    BROADCAST_CLIENT_COUNT: BroadcastClientCount,
    BROADCAST_ACK: BroadcastAck,
    MARKER: Marker,
}


class Malformed(NamedTuple):
    """What could not be decoded, and why; holds nothing of the content."""

    reason: str


class Message(NamedTuple):
    """The outside of a message; :meth:`body` decodes the rest."""

    uid: str
    nsp: str
    type: int
    data: bytes
    packed: bool
    tag: bytes = b""

    def body(self) -> Body | Malformed:
        """The typed content, or Malformed; also for types that carry none (heartbeats of 0.2.x)."""
        kind = _BODIES.get(self.type)
        if kind is None:
            return Malformed("unknown type")
        try:
            body: Body = _decode(self.data, kind, self.packed)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            return Malformed(f"data of type {self.type}: {type(error).__name__}")
        if isinstance(body, Broadcast):
            body.packed = self.packed
        elif self.packed:
            without_dates(body)
        return body


# -- decoding ------------------------------------------------------------------------------------------
def decode_entry(fields: Sequence[bytes] | None) -> Message | Malformed:
    """A stream entry as XREAD gives it: names and values in turn."""
    if not fields:
        return Malformed("no fields")
    try:
        entry = dict(zip(fields[::2], fields[1::2], strict=True))
        uid, nsp, number = entry[b"uid"].decode(), entry[b"nsp"].decode(), int(entry[b"type"])
        data = entry.get(b"data", b"")
        # The reader's rule of Node: JSON begins with a brace.
        packed = not data.startswith(b"{")
        content = binascii.a2b_base64(data) if packed else data
        return Message(uid, nsp, number, content, packed, entry.get(b"n", b""))
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        return Malformed(f"entry: {type(error).__name__}")


class _Payload(msgspec.Struct):
    type: int
    uid: str
    nsp: str
    data: msgspec.Raw = msgspec.Raw(b"\xc0")


def decode_payload(payload: bytes) -> Message | Malformed:
    """A published message."""
    try:
        outer = msgspec.msgpack.decode(payload, type=_Payload, ext_hook=_ext)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return Malformed(f"payload: {type(error).__name__}")
    return Message(outer.uid, outer.nsp, outer.type, bytes(outer.data), True)


def _ext(code: int, data: memoryview) -> Any:
    # notepack.io, Node's encoder, writes `undefined` as extension 0; dates (-1) are decoded by msgspec.
    return None if code == 0 else bytes(data)


def _decode(data: bytes, kind: Any, packed: bool) -> Any:
    if packed:
        return msgspec.msgpack.decode(data, type=kind, ext_hook=_ext)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        # JSON.stringify writes a lone surrogate as \udxxx, which is JSON but not UTF-8.
        if b"\\u" not in data:
            raise
        return msgspec.json.decode(well_formed(json.dumps(json.loads(data), ensure_ascii=False)), type=kind)


def _load(data: bytes, packed: bool) -> Any:
    try:
        return without_dates(msgspec.msgpack.decode(data, ext_hook=_ext)) if packed else orjson.loads(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


# -- encoding ------------------------------------------------------------------------------------------
def opts(
    rooms: Collection[Any] = (), except_: Collection[Any] = (), flags: dict[str, Any] | None = None
) -> dict[str, Any]:
    """``{rooms, except, flags}``; names become strings, which is what JavaScript compares."""
    return {"rooms": _strings(rooms), "except": _strings(except_), "flags": flags or {}}


def _strings(names: Iterable[Any]) -> list[str]:
    return [name if type(name) is str else str(name) for name in names]


def broadcast(
    event: str, args: Sequence[Any], to: dict[str, Any], request_id: str | None = None
) -> dict[str, Any]:
    """``data`` of type 3; with ``request_id`` every node answers with 11 and 12."""
    data: dict[str, Any] = {"packet": {"type": 2, "data": [event, *args]}, "opts": to}
    if request_id is not None:
        data["requestId"] = request_id
    return data


def encode_entry(uid: str, nsp: str, number: int, data: dict[str, Any] | None) -> list[bytes | str]:
    """Fields of a stream entry. Raises :class:`TypeError` or :class:`ValueError` for what JSON cannot hold."""
    if data is None:
        return ["uid", uid, "nsp", nsp, "type", str(number)]
    return ["uid", uid, "nsp", nsp, "type", str(number), "data", encode_data(data)]


def encode_data(data: dict[str, Any]) -> bytes:
    """JSON, or base64 of msgpack when something in it is binary."""
    try:
        return orjson.dumps(data, default=_refuse_bytes, option=orjson.OPT_UTC_Z)
    except TypeError as error:  # orjson.JSONEncodeError is one
        if isinstance(error.__cause__, _IsBinary):
            return binascii.b2a_base64(_pack(data), newline=False)
    try:
        return json.dumps(portable(data, binary=False), separators=(",", ":"), default=_refuse_bytes).encode()
    except _IsBinary:
        return binascii.b2a_base64(_pack(data), newline=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_payload(uid: str, nsp: str, number: int, data: dict[str, Any]) -> bytes:
    """A published message. Raises :class:`TypeError` or :class:`ValueError` for what msgpack cannot hold."""
    return _pack({"type": number, "data": data, "uid": uid, "nsp": nsp})


class _IsBinary(TypeError):
    """JSON cannot hold bytes: the other encoding is needed."""


def _refuse_bytes(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise _IsBinary
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _pack(data: Any) -> bytes:
    try:
        return ormsgpack.packb(data, default=_plain_bytes, option=ormsgpack.OPT_UTC_Z)
    except TypeError:
        return ormsgpack.packb(portable(data, binary=True))


def _plain_bytes(value: Any) -> Any:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} cannot be sent")
