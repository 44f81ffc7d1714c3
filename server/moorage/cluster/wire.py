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
import secrets
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson
import ormsgpack

from moorage.cluster.plain import portable, well_formed, without_dates

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

EMITTER_UID: Final = "emitter"
"""Sender that is no node: Node's emitter, and our counted updates, which every node delivers, the sender too."""


# -- names ---------------------------------------------------------------------------------------------
def new_uid() -> str:
    """16 hex digits: a node in one namespace, or a request."""
    return secrets.token_hex(8)


def namespace_hash(namespace: str) -> int:
    """Node's string hash: factor 31 over UTF-16 code units, signed 32 bit after each step."""
    units = namespace.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def stream_of(name: str, namespace: str, count: int = 1) -> str:
    """The one stream that carries a namespace.

    JavaScript's remainder keeps the sign, so some namespaces get a name like ``socket.io--3`` that Node writes
    but does not read. We write and read that same name.
    """
    if count == 1:
        return name
    value = namespace_hash(namespace)
    index = abs(value) % count
    return f"{name}-{-index if value < 0 and index else index}"


def public_channel(prefix: str, namespace: str) -> str:
    """Requests to all nodes of a namespace."""
    return f"{prefix}#{namespace}#"


def private_channel(prefix: str, namespace: str, uid: str) -> str:
    """Answers to one node."""
    return f"{prefix}#{namespace}#{uid}#"


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


class Broadcast(msgspec.Struct):
    """Type 3. The event and its arguments stay encoded until :meth:`event` is called."""

    packet: _Packet
    opts: Opts
    requestId: Any = None
    packed: bool = False

    def event(self) -> list[Any] | Malformed:
        """``[name, *args]``."""
        data = _load(bytes(self.packet.data), self.packed)
        if not isinstance(data, list) or not data or not isinstance(data[0], str):
            return Malformed("packet.data")
        return data


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
    """Type 12: the first argument of one socket's ack."""

    requestId: str
    packet: Any = None


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
        return Message(uid, nsp, number, binascii.a2b_base64(data) if packed else data, packed)
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


def encode_entry(uid: str, nsp: str, number: int, data: dict[str, Any]) -> list[bytes | str]:
    """Fields of a stream entry. Raises :class:`TypeError` or :class:`ValueError` for what JSON cannot hold."""
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
