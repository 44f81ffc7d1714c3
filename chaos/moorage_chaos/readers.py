"""Readers of event logs under record: the product's own ``moorage.client.EventStream``, unchanged.

What it yields is what a user's page would render: each item is a note ``event``, each gap a note ``gap``. How often a
connection was resumed, and how often replay and live overlapped, is in the note ``resumed`` at the end.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, ClassVar

from moorage.client import ClientError, EventStream
from moorage.client.event_frames import Event
from moorage_chaos.accounts import Account
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Replica
from moorage_chaos.marks import mark_of

READY_S = 10.0


class Rendering:
    """What a reader of either kind has rendered, as notes of the history."""

    kind: ClassVar[str]

    def __init__(self, clients: Clients, name: str, session: str, at: str = "") -> None:
        self.name = name
        self.session = session
        self.at = at
        """The replica's link, if it is pinned to one."""
        self.history = clients.history
        self.types: list[str] = []
        """Of what was rendered, in order."""
        self.questions: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()
        """Set whenever something is rendered; waiters clear it."""

    def began(self) -> None:
        """From here on nothing can be missed."""
        known: dict[str, Any] = {
            "reader": self.name,
            "session": self.session,
            "kind": self.kind,
            "at": self.at,
        }
        self.history.note("reader", process=self.name, **known)

    def rendered(
        self, id: str | None, seq: int | None, type: str, data: Any, key: str | None, source: str
    ) -> None:
        """``source``: ``live``, ``replay`` or ``turn``."""
        value: dict[str, Any] = {
            "id": id,
            "seq": seq,
            "type": type,
            "key": key,
            "from": source,
            "mark": mark_of(type, data),
        }
        if type == "unlogged" and isinstance(data, dict):
            value["count"] = data.get("count")
        self.history.note("event", process=self.name, reader=self.name, **value)
        self.types.append(type)
        if type == "question":
            self.questions.append(data)
        self.arrived.set()

    def gap(self, reason: str, missed: int | None, oldest: str | None, turn: str | None) -> None:
        """``turn``: status of the one it was rebuilt from."""
        value: dict[str, Any] = {"reason": reason, "missed": missed, "oldest": oldest, "turn": turn}
        self.history.note("gap", process=self.name, reader=self.name, **value)

    def failed(self, error: object) -> None:
        """It gave up."""
        self.history.note("reader-failed", process=self.name, reader=self.name, error=str(error))

    def resumed(self, statistics: dict[str, int]) -> None:
        """At its end."""
        self.history.note("resumed", process=self.name, reader=self.name, kind=self.kind, **statistics)

    @property
    def live(self) -> bool:
        raise NotImplementedError

    async def start_task(self, input: Any, handler: str) -> str:
        """Through the client under test. Raises what that raises."""
        raise NotImplementedError

    async def until(self, type: str, bound_s: float, count: int = 1) -> bool:
        """So many events of this type were rendered; False if they were not within ``bound_s``."""
        try:
            async with asyncio.timeout(bound_s):
                while self.types.count(type) < count:
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        raise NotImplementedError


class Reader(Rendering):
    """Made by :func:`reader`."""

    kind = "python"

    def __init__(self, clients: Clients, name: str, session: str, stream: EventStream, at: str = "") -> None:
        super().__init__(clients, name, session, at)
        self.stream = stream
        self._clients = clients
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when nothing can be missed any more. Raises ClientError."""
        await self.stream.start()
        self._task = self._clients.start(self._render())
        await self.stream.ready(READY_S)
        self.began()

    async def _render(self) -> None:
        try:
            async for item in self.stream:
                if isinstance(item, Event):
                    self._event(item, "replay" if item.replayed else "live")
                    continue
                if item.gap is not None:
                    status = item.turn.status if item.turn is not None else None
                    self.gap(item.gap.reason, item.gap.missed, item.gap.oldest, status)
                for event in item.new:
                    self._event(event, "turn")
        except ClientError as error:
            self.failed(error)

    def _event(self, event: Event, source: str) -> None:
        self.rendered(event.id, event.seq, event.type, event.data, event.key, source)

    def note_states(self) -> None:
        """Each change of state becomes a note ``reader-state``."""

        def changed(state: str) -> None:
            self.history.note("reader-state", process=self.name, reader=self.name, state=state)

        self.stream.on_state(changed)

    def abort(self) -> None:
        """Drop the TCP connection without a word."""
        connection = getattr(self.stream._ws, "_conn", None)
        transport = getattr(connection, "transport", None)
        if transport is not None:
            transport.abort()

    @property
    def live(self) -> bool:
        return self.stream.state == "live"

    async def start_task(self, input: Any, handler: str) -> str:
        return await self.stream.start_task(input, handler)

    async def close(self, *, early: bool = False) -> None:
        """``early``: on purpose, while others read on."""
        if early:
            self.history.note("reader-closed", process=self.name, reader=self.name)
        await self.stream.close()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self.resumed(asdict(self.stream.statistics))


async def reader(
    clients: Clients,
    account: Account,
    session: str,
    *,
    door: str = "",
    where: Replica | None = None,
    states: bool = False,
    **more: Any,
) -> Reader:
    """A reader that is ready, through the front, a ``door`` (its URL), or of one replica; ``states``: note each change
    of its state; ``more``: for the stream. Raises ClientError."""
    token = await clients.token(account)
    url = where.url if where is not None else door or clients.front()
    stream = EventStream(url, token, session, **more)
    made = Reader(clients, clients.name("reader"), session, stream, where.link if where is not None else "")
    clients.on_close(made.close)
    if states:
        made.note_states()
    await made.start()
    return made
