"""How questions and answers travel: by pub/sub (adapter 0.3.x), by sharded pub/sub, or by the stream (0.2.x)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from moorage.cluster import wire
from moorage.errors import BackplaneReply
from moorage.storage.backplane import Backplane

NODES_MAX = 100_000
"""More nodes than that is a wrong answer: Valkey 9.1.2 counts hundreds of millions at 8, 15, 16, 29 to 32 and 57 to
64 subscribers, until the next one comes or goes (seen; its PUBLISH counts right)."""

HEARTBEAT_S = 5.0
HEARTBEAT_TIMEOUT_S = 10.0
"""[s] The 0.2.x adapter's own: a node tells that it lives, and is forgotten when it is silent for that long."""

Receive = Callable[[wire.Message | wire.Malformed], None]


class Carrier(Protocol):
    """Reaches the other nodes of a namespace."""

    def open(self, namespace: str, asked: Receive, answered: Receive) -> list[asyncio.Future[None]]:
        """Become a node of it; the futures are done when the others can reach this one."""

    def close(self, namespace: str) -> None:
        """Be one no more."""

    def ask(self, namespace: str, number: int, data: dict[str, Any]) -> asyncio.Future[int]:
        """Ask all; how many nodes got it, this one among them."""

    def reply(self, namespace: str, uid: str, number: int, data: dict[str, Any]) -> None:
        """Answer the node ``uid``. Raises :class:`TypeError` or :class:`ValueError` for what cannot be sent."""

    async def node_count(self, namespace: str) -> int:
        """The nodes, this one among them. Raises :class:`BackplaneError`."""

    async def gone(self, namespace: str, uids: Sequence[str]) -> frozenset[str]:
        """Those of the nodes ``uids`` that are not there now. Raises :class:`BackplaneError`."""


class PubSub:
    """Format 0.3.x: a public channel for questions, a private one for each node's answers."""

    def __init__(self, backplane: Backplane, *, uid: str, prefix: str, sharded: bool) -> None:
        self._backplane, self._uid, self._prefix, self._sharded = backplane, uid, prefix, sharded
        self._open: dict[str, tuple[Callable[[bytes], None], Callable[[bytes], None]]] = {}

    def open(self, namespace: str, asked: Receive, answered: Receive) -> list[asyncio.Future[None]]:
        """Subscribe."""

        def public(payload: bytes) -> None:
            asked(wire.decode_payload(payload))

        def private(payload: bytes) -> None:
            answered(wire.decode_payload(payload))

        self._open[namespace] = public, private
        channels = self._channels(namespace)
        return [
            self._backplane.subscribe(channel, callback, sharded=self._sharded)
            for channel, callback in zip(channels, (public, private), strict=True)
        ]

    def close(self, namespace: str) -> None:
        """Unsubscribe, so that nobody waits for us."""
        for channel, callback in zip(self._channels(namespace), self._open.pop(namespace), strict=True):
            self._backplane.unsubscribe(channel, callback)

    def _channels(self, namespace: str) -> tuple[str, str]:
        return (
            wire.public_channel(self._prefix, namespace),
            wire.private_channel(self._prefix, namespace, self._uid),
        )

    def ask(self, namespace: str, number: int, data: dict[str, Any]) -> asyncio.Future[int]:
        """``PUBLISH`` says how many got it."""
        payload = wire.encode_payload(self._uid, namespace, number, data)
        channel = wire.public_channel(self._prefix, namespace)
        return self._backplane.publish(channel, payload, sharded=self._sharded)

    def reply(self, namespace: str, uid: str, number: int, data: dict[str, Any]) -> None:
        """On the private channel of ``uid``."""
        payload = wire.encode_payload(self._uid, namespace, number, data)
        channel = wire.private_channel(self._prefix, namespace, uid)
        self._backplane.publish(channel, payload, sharded=self._sharded)

    async def node_count(self, namespace: str) -> int:
        """Subscribers of the public channel."""
        kind = "SHARDNUMSUB" if self._sharded else "NUMSUB"
        channel = wire.public_channel(self._prefix, namespace)
        count = int((await self._backplane.command("PUBSUB", kind, channel))[1])
        if count > NODES_MAX:
            raise BackplaneReply(f"implausible {kind}: {count}")
        return count

    async def gone(self, namespace: str, uids: Sequence[str]) -> frozenset[str]:
        """Nobody subscribes to its private channel."""
        kind = "SHARDNUMSUB" if self._sharded else "NUMSUB"
        channels = [wire.private_channel(self._prefix, namespace, uid) for uid in uids]
        counts = (await self._backplane.command("PUBSUB", kind, *channels))[1::2]
        return frozenset(uid for uid, count in zip(uids, counts, strict=True) if int(count) == 0)


class Stream:
    """Format 0.2.x: all by the stream, for clusters with such nodes and for a Redis without pub/sub.

    Nodes are counted by heartbeats: one is sent at the start and asked for by a first one, then every
    :data:`HEARTBEAT_S`; whatever a node sends is a sign of life.
    """

    def __init__(self, append: Callable[[str, int, dict[str, Any] | None], None], *, uid: str) -> None:
        """``append(namespace, type, data)`` writes an entry; None: without the field."""
        self._append, self._uid = append, uid
        self._open: dict[str, tuple[Receive, Receive]] = {}
        self._nodes: dict[str, dict[str, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def open(self, namespace: str, asked: Receive, answered: Receive) -> list[asyncio.Future[None]]:
        """Say that a node is here; the others answer with a heartbeat."""
        self._open[namespace] = asked, answered
        self._nodes[namespace] = {}
        self._append(namespace, wire.INITIAL_HEARTBEAT, None)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)
        return []

    def close(self, namespace: str) -> None:
        """Say goodbye."""
        del self._open[namespace], self._nodes[namespace]
        self._append(namespace, wire.ADAPTER_CLOSE, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)
        for namespace in self._open:
            self._append(namespace, wire.HEARTBEAT, None)

    def ask(self, namespace: str, number: int, data: dict[str, Any]) -> asyncio.Future[int]:
        """How many are known to live; there is no other count."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._append(namespace, number, data)
        future.set_result(1 + self._living(namespace))
        return future

    def reply(self, namespace: str, uid: str, number: int, data: dict[str, Any]) -> None:
        """All nodes read it; only the one that asked knows its ``requestId``."""
        self._append(namespace, number, data)

    async def node_count(self, namespace: str) -> int:
        """Those that gave a sign of life lately, and this one."""
        return 1 + self._living(namespace)

    async def gone(self, namespace: str, uids: Sequence[str]) -> frozenset[str]:
        """Those that did not."""
        self._living(namespace)
        return frozenset(uids) - self._nodes.get(namespace, {}).keys()

    def _living(self, namespace: str) -> int:
        nodes = self._nodes.get(namespace, {})
        oldest = asyncio.get_running_loop().time() - HEARTBEAT_TIMEOUT_S
        for uid in [uid for uid, heard in nodes.items() if heard < oldest]:
            del nodes[uid]
        return len(nodes)

    def read(self, message: wire.Message) -> bool:
        """An entry of another node. True: it was a question, an answer or a sign of life, nothing else."""
        opened = self._open.get(message.nsp)
        if opened is None:
            return message.type not in _OF_THE_STREAM
        nodes = self._nodes[message.nsp]
        if message.type == wire.ADAPTER_CLOSE:
            nodes.pop(message.uid, None)
            return True
        if message.uid != wire.EMITTER_UID:
            nodes[message.uid] = asyncio.get_running_loop().time()
        if message.type == wire.INITIAL_HEARTBEAT:
            self._append(message.nsp, wire.HEARTBEAT, None)
        elif message.type in _QUESTIONS or (message.type == wire.BROADCAST and _wants_acks(message)):
            opened[0](message)
        elif message.type in _ANSWERS:
            opened[1](message)
        elif message.type in _OF_THE_STREAM:
            return False
        return True


_OF_THE_STREAM = (wire.BROADCAST, wire.SOCKETS_JOIN, wire.SOCKETS_LEAVE, wire.DISCONNECT_SOCKETS, wire.MARKER)
_QUESTIONS = (wire.FETCH_SOCKETS, wire.SERVER_SIDE_EMIT)
_ANSWERS: Iterable[int] = (
    wire.FETCH_SOCKETS_RESPONSE,
    wire.SERVER_SIDE_EMIT_RESPONSE,
    wire.BROADCAST_CLIENT_COUNT,
    wire.BROADCAST_ACK,
)


def _wants_acks(message: wire.Message) -> bool:
    body = message.body()
    return isinstance(body, wire.Broadcast) and isinstance(body.requestId, str)
