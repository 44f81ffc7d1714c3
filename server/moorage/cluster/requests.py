"""Questions to all nodes of a namespace; their answers are in ``answers``, the way there in ``carriers``.

A question never fails: it gives what came, and whether that was all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from moorage.cluster import wire
from moorage.cluster.answers import ANSWER_BOUND_MS, Answers, LocalSockets
from moorage.cluster.carriers import Carrier
from moorage.cluster.wire import Opts, RemoteSocket
from moorage.errors import BackplaneError

logger = logging.getLogger(__name__)

RECOUNT_S = 0.25
"""How often a waiting question counts the nodes again, to see that one has gone."""


class _Question:
    """What came in so far."""

    def __init__(self, *, acks: bool, single: bool = False, on_ack: Callable[..., Any] | None = None) -> None:
        self.values: list[Any] = []
        self.nodes = 0
        self.changed = asyncio.Event()
        self._acks, self._single, self._on_ack = acks, single, on_ack
        self._clients = 0
        self._acked = 0
        self.owing: dict[str, int] = {}
        """Node -> acks of its sockets that are to come."""

    def answer(self, values: Sequence[Any]) -> None:
        self.nodes += 1
        self.values.extend(values)
        self.changed.set()

    def clients(self, count: int, uid: str = "") -> None:
        self.nodes += 1
        self._clients += count
        if uid and count:
            self.owing[uid] = self.owing.get(uid, 0) + count
        self.changed.set()

    def acked_by(self, uid: str, *args: Any) -> None:
        if self.owing.get(uid, 0) > 1:
            self.owing[uid] -= 1
        else:
            self.owing.pop(uid, None)
        self.ack(*args)

    def lose(self, uid: str) -> None:
        """The node is gone, and with it its acks."""
        self._clients -= self.owing.pop(uid)

    def ack(self, *args: Any) -> None:
        self._acked += 1
        self.values.append(args[0] if args else None)
        self.changed.set()
        if self._on_ack is not None:
            try:
                self._on_ack(*args)
            except Exception:
                logger.exception("callback of an ack failed")

    def complete(self, expected_nodes: int) -> bool:
        if self._single and self._acked:
            return True
        return self.nodes >= expected_nodes and not (self._acks and self._acked < self._clients)


class Requests:
    """Asks, and is a node that answers. ``uid`` is this node's."""

    def __init__(self, carrier: Carrier, local: LocalSockets, *, uid: str) -> None:
        self.answers = Answers(carrier, local, uid=uid)
        self._malformed = 0
        self._carrier, self._local = carrier, local
        self._open: set[str] = set()
        self._stopped = False
        self._questions: dict[str, _Question] = {}

    @property
    def handlers(self) -> dict[str, Callable[..., Any]]:
        """What :meth:`server_side_emit` of other nodes reaches here; see :class:`Answers`."""
        return self.answers.handlers

    @property
    def malformed(self) -> int:
        """Messages that could not be decoded."""
        return self._malformed + self.answers.malformed

    # -- life ------------------------------------------------------------------------------------------
    def open(self, namespace: str) -> list[asyncio.Future[None]]:
        """Become a node of ``namespace``. The futures are done when the others can reach it."""
        self._stopped = False
        if namespace in self._open:
            return []
        self._open.add(namespace)

        def asked(message: wire.Message | wire.Malformed) -> None:
            self.answers.asked(namespace, message)

        return self._carrier.open(namespace, asked, self._answered)

    def close(self, namespace: str) -> None:
        """Stop being one, so that nobody waits for us."""
        if namespace in self._open:
            self._open.remove(namespace)
            self._carrier.close(namespace)

    async def stop(self) -> None:
        """Close all namespaces and end running handlers. Nobody is asked any more."""
        self._stopped = True
        for namespace in tuple(self._open):
            self.close(namespace)
        await self.answers.stop()

    # -- asking ----------------------------------------------------------------------------------------
    async def node_count(self, namespace: str = "/") -> int:
        """The nodes, ourselves included. Raises :class:`BackplaneError`."""
        return await self._carrier.node_count(namespace)

    async def fetch_sockets(
        self,
        rooms: Collection[str] = (),
        except_: Collection[str] = (),
        timeout_ms: float = ANSWER_BOUND_MS,
        namespace: str = "/",
    ) -> tuple[list[RemoteSocket], bool]:
        """Sockets in ``rooms`` on all nodes, and whether all nodes answered within ``timeout_ms``."""
        opts = wire.opts(rooms, except_)
        meant = Opts(list(rooms), list(except_))
        question = _Question(acks=False)
        for sid in self._local.matching(namespace, meant):
            question.values.append(RemoteSocket(**self._local.describe(namespace, sid)))
        complete = await self._ask(namespace, wire.FETCH_SOCKETS, {"opts": opts}, question, timeout_ms)
        return question.values, complete

    async def emit_with_ack(
        self,
        rooms: str | Collection[str],
        event: str,
        args: Sequence[Any],
        timeout_ms: float,
        except_: Collection[str] = (),
        namespace: str = "/",
        *,
        single: bool = False,
        on_ack: Callable[..., Any] | None = None,
    ) -> tuple[list[Any], bool]:
        """Emit to ``rooms`` (a room or a sid, or several) on all nodes and collect the acks.

        Returns the first argument of each ack, and whether every socket of every node acked within
        ``timeout_ms``. ``single``: done at the first ack. ``on_ack(*args)`` is called for each.
        Raises :class:`TypeError` or :class:`ValueError` for arguments that cannot be sent.
        """
        names = [rooms] if isinstance(rooms, str) else list(rooms)
        flags: dict[str, Any] = {"timeout": timeout_ms}
        if single:
            flags["expectSingleResponse"] = True
        data = wire.broadcast(event, args, wire.opts(names, except_, flags))
        question = _Question(acks=True, single=single, on_ack=on_ack)
        targets = self._local.matching(namespace, Opts(list(names), list(except_)))

        def emit_here() -> Callable[[], None]:
            question.clients(len(targets))
            return self._local.emit_acked(namespace, targets, [event, *args], question.ack)

        complete = await self._ask(
            namespace, wire.BROADCAST, data, question, timeout_ms, mine=1, meanwhile=emit_here
        )
        return question.values, complete

    async def server_side_emit(
        self, event: str, args: Sequence[Any] = (), timeout_ms: float | None = None, namespace: str = "/"
    ) -> tuple[list[Any], bool]:
        """Run the handlers of ``event`` on all other nodes.

        With ``timeout_ms`` their answers are collected: returns them, and whether all answered. Without, returns
        ``([], True)`` when Redis took it, else ``([], False)``.
        """
        data: dict[str, Any] = {"packet": [event, *args]}
        if timeout_ms is None:
            try:
                await self._carrier.ask(namespace, wire.SERVER_SIDE_EMIT, data)
            except BackplaneError:
                return [], False
            return [], True
        question = _Question(acks=False)
        complete = await self._ask(namespace, wire.SERVER_SIDE_EMIT, data, question, timeout_ms)
        return question.values, complete

    async def _ask(
        self,
        namespace: str,
        number: int,
        data: dict[str, Any],
        question: _Question,
        timeout_ms: float,
        *,
        mine: int = 0,
        meanwhile: Callable[[], Callable[[], None]] | None = None,
    ) -> bool:
        """``mine``: whether this node counts, too. ``meanwhile`` does its part once the others have theirs."""
        request_id = wire.new_uid()
        self._questions[request_id] = question
        forget: Callable[[], None] | None = None
        try:
            if self._stopped:
                return False
            # Who got the question must answer it.
            asked = self._carrier.ask(namespace, number, {**data, "requestId": request_id})
            if meanwhile is not None:
                forget = meanwhile()
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._collect(namespace, question, asked, mine)
        except (BackplaneError, TimeoutError):
            return False
        finally:
            del self._questions[request_id]
            if forget is not None:
                forget()

    async def _collect(
        self, namespace: str, question: _Question, asked: asyncio.Future[int], mine: int
    ) -> bool:
        expected = await asked - 1 + mine
        whole, suspects = True, frozenset[str]()
        while not question.complete(expected):
            question.changed.clear()
            try:
                async with asyncio.timeout(RECOUNT_S):
                    await question.changed.wait()
            except TimeoutError:
                left = await self._carrier.node_count(namespace) - 1 + mine
                if left < expected and question.complete(left):
                    return False  # somebody went without an answer
                if question.owing:
                    # Twice: who only renews its subscription can still send acks.
                    gone = await self._carrier.gone(namespace, tuple(question.owing))
                    for uid in gone & suspects & question.owing.keys():
                        question.lose(uid)
                        whole = False
                    suspects = gone
        return whole

    # -- what comes back -----------------------------------------------------------------------------------
    def _answered(self, message: wire.Message | wire.Malformed) -> None:
        body = message.body() if isinstance(message, wire.Message) else message
        if isinstance(message, wire.Malformed) or isinstance(body, wire.Malformed):
            self._malformed += 1
            return
        question = self._questions.get(getattr(body, "requestId", ""))
        if question is None:
            return  # too late
        if isinstance(body, wire.FetchSocketsResponse):
            question.answer(body.sockets)
        elif isinstance(body, wire.ServerSideEmitResponse):
            question.answer([body.packet])
        elif isinstance(body, wire.BroadcastClientCount):
            question.clients(body.clientCount, message.uid)
        elif isinstance(body, wire.BroadcastAck):
            question.acked_by(message.uid, *([body.packet] if body.args is None else body.args))
