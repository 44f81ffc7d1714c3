"""A session's event log as an async iterator that survives lost connections (PROTOCOL, "Clients")."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from typing import Any, Literal, Self

import aiohttp

from moorage.client.errors import ClientError, Refused, Unreachable
from moorage.client.event_frames import Checkpoint, Done, Event, Frame, Gap, Ping, Ready, parse
from moorage.client.event_http import SessionApi
from moorage.client.event_ledger import Ledger, OtherLog, Statistics
from moorage.client.event_mailbox import Item, Mailbox
from moorage.client.event_retry import ON_PURPOSE, REFUSALS, Tries
from moorage.client.listeners import Listeners, Tasks
from moorage.client.signin import Token, TokenSource
from moorage.client.timing import Signal

log = logging.getLogger("moorage.client")

StreamState = Literal["connecting", "replaying", "live", "waiting", "failed", "closed"]

SILENCE_S = 45.0
"""[s] So long without a frame, and the connection is dead (PROTOCOL)."""

HOLE_S = 5.0
"""[s] A missing event is waited for so long: a server that lost its subscription catches its readers up within
2 s (PROTOCOL, Log). Then the log is read anew."""

PONG = json.dumps({"type": "pong"})
BEGINNING = Checkpoint("0-0", 0)


class EventStream:
    """Events of one session, each once and in the order of the log, over any number of connections::

        async with EventStream(url, token, session_id) as stream:
            await stream.start_task({"topic": "boats"})
            async for item in stream:
                match item:
                    case Event(type="task_result", data=data): ...
                    case Rebuilt(turn=turn): ...   # throw away what is shown, show the turn

    ``url``, ``token``, ``tls``, ``open_timeout`` [s] as for :class:`~moorage.client.Connection`; the latter bounds
    every request too.

    ``checkpoint``: resume there; the application has kept what came before. Without one, ``begin`` says where:
    ``turn`` (the latest turn comes first, as :class:`Rebuilt`, if there is one), ``now``, or ``beginning`` (all
    that the log keeps).

    ``save``: called with the checkpoint of what the consumer has dealt with, that is, when it asks for the next
    item. ``queue``: so many items wait for a slow consumer before reading stops, which ends, if it lasts, in the
    server closing the connection, and in a resume.

    States: ``connecting``, ``replaying`` (``ws_ready`` came; the log or the turn is being read), ``live``,
    ``waiting`` (until the next try), ``failed`` (:attr:`cause` says why; :meth:`reconnect` tries again), ``closed``.
    Lost connections are opened again after 800 ms, doubling to 8 s, at most 5 times in a row.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        session_id: str,
        *,
        checkpoint: Checkpoint | None = None,
        begin: Literal["turn", "now", "beginning"] = "turn",
        save: Callable[[Checkpoint], Any] | None = None,
        queue: int = 1000,
        open_timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.state: StreamState = "closed"
        self.cause: ClientError | None = None
        """Why the last connection, or the last try, ended."""
        self.checkpoint = checkpoint
        """Where the consumer is, once it has dealt with what it was given last."""
        self._rebuild_first = begin == "turn"
        self._ledger = Ledger(checkpoint or (BEGINNING if begin == "beginning" else None))
        self._token = TokenSource(token, open_timeout)
        self._api = SessionApi(url, session_id, self._token, open_timeout, tls)
        self._mailbox = Mailbox(queue)
        self._save = save
        self._unsaved: Checkpoint | None = None
        self._tries = Tries()
        self._tasks = Tasks()
        self._listeners = Listeners(self._tasks)
        self._changed = Signal()
        self._again = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._rebuilding: asyncio.Task[None] | None = None
        self._hole_timer: asyncio.TimerHandle | None = None

    # -- what is shown -------------------------------------------------------------------------------------

    @property
    def statistics(self) -> Statistics:
        """Counts since the stream was made; they go on changing."""
        return self._ledger.statistics

    def on_state(self, callback: Callable[[StreamState], Any]) -> Callable[[StreamState], Any]:
        """Call ``callback(state)`` at every change. Usable as a decorator."""
        self._listeners.add("state", callback)
        return callback

    async def ready(self, timeout: float = 30.0) -> None:
        """Return once ``ws_ready`` has come on the connection in use, and the turn, if it has to be fetched first:
        from then on nothing can be missed.

        Raises :class:`Refused` or :class:`Unreachable` if the stream fails, is closed, or after ``timeout``
        seconds."""
        try:
            await self._changed.until(self._usable, timeout)
        except TimeoutError:
            raise Unreachable(f"not ready within {timeout:g} s: {self.cause or 'no answer yet'}") from None

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect, in the background. After :meth:`close` it goes on from where it was."""
        if self._loop_task is None or self._loop_task.done():
            self._tries.reset()
            self._mailbox.reopen()
            self._set_state("connecting")
            self._loop_task = asyncio.create_task(self._keep())

    async def reconnect(self) -> None:
        """Try now: after ``failed``, instead of waiting for the next try, or in place of a connection that
        seems dead. The count of tries begins anew."""
        self._tries.reset()
        self._again.set()
        if self._ws is not None:
            self._drop(self._ws, "reconnect() was called")
        await self.start()

    async def close(self) -> None:
        """Let go of the connection. What was received before can still be taken."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.wait([self._loop_task])
            self._loop_task = None
        self._stop_hole_timer()
        ws, self._ws = self._ws, None
        if ws is not None:
            await ws.close()
        await self._tasks.cancel(1.0)
        await self._api.close()
        self._end("closed")

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            await self.ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- using it --------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        """The next event, or the order to rebuild. Ends when the stream is closed, here or by the server.

        Raises the cause, :class:`Refused` or :class:`Unreachable`, when the stream has failed."""
        while True:
            if self._unsaved is not None and self._save is not None:
                self._listeners.call(self._save, self._unsaved)
            self._unsaved = None
            entry = await self._mailbox.take()
            if entry is None:
                if self.state == "failed" and self.cause is not None:
                    raise self.cause
                raise StopAsyncIteration
            item, checkpoint = entry
            if checkpoint is not None and checkpoint != self.checkpoint:
                self.checkpoint = self._unsaved = checkpoint
            if item is not None:
                return item

    async def start_task(self, input: Any, handler: str | None = None, *, timeout: float = 30.0) -> str:
        """Wait for ``ws_ready``, then start a task and return its id. The request is sent once, ever.

        Raises :class:`Refused` if it certainly was not started; :class:`Unreachable` if it is not known: the
        turn tells."""
        await self.ready(timeout)
        return await self._api.start_task(input, handler)

    async def reply(self, question_id: str, answer: Any) -> None:
        """Answer a question of the task. Raises :class:`Refused` if it is unknown or answered,
        :class:`Unreachable` if the answer may not have arrived; repeating it does no harm."""
        await self._api.reply(question_id, answer)

    # -- connections -----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            self._again.clear()
            code, self.cause = await self._connection()
            if code == ON_PURPOSE:
                return self._end("closed")
            if isinstance(self.cause, Refused):
                return self._end("failed")
            pause = self._tries.pause(code)
            if pause is None:
                return self._end("failed")
            self._set_state("waiting")
            try:
                async with asyncio.timeout(pause):
                    await self._again.wait()
            except TimeoutError:
                pass
            self._set_state("connecting")

    async def _connection(self) -> tuple[int | None, ClientError]:
        """One connection, from its opening to its end: close code, if there was one, and cause."""
        self._lost: ClientError | None = None
        left = self._ledger.begin(rebuild=self._rebuild_first)
        if left:
            self._mailbox.add(left, None)
        try:
            self._ws = await self._api.connect(self._ledger.checkpoint, SILENCE_S)
            code = await self._read(self._ws)
        except ClientError as error:
            return None, error
        except Exception as error:
            log.exception("a bug, or a frame that nobody foresaw")
            return None, Unreachable(f"{type(error).__name__}: {error}")
        finally:
            self._stop_hole_timer()
            if self._ws is not None:
                self._tasks.spawn(self._ws.close())
                self._ws = None
        if code == 4401 and self._token.renew():
            return code, Unreachable(REFUSALS[4401])
        if code in REFUSALS:
            return code, Refused(REFUSALS[code])
        return code, self._lost or Unreachable(f"closed with {code}" if code else "connection lost")

    async def _read(self, ws: aiohttp.ClientWebSocketResponse) -> int | None:
        """Read until the end and return the server's close code, None if it sent none."""
        while True:
            await self._mailbox.room()
            try:
                message = await ws.receive()
            except TimeoutError:
                self._lost = Unreachable(f"silent for {SILENCE_S:g} s")
                return None
            if message.type is aiohttp.WSMsgType.TEXT:
                frame = parse(message.data)
                if frame is None:
                    self.statistics.malformed += 1
                    continue
                try:
                    await self._take(ws, frame)
                except (OtherLog, OSError) as error:
                    self._lost = Unreachable(str(error))
                    return None
            elif message.type is aiohttp.WSMsgType.CLOSE:
                return message.data or None
            elif message.type is not aiohttp.WSMsgType.BINARY:
                # Only a CLOSE frame carries the server's word: aiohttp's own close_code is 1000 for a cut, too.
                return None

    async def _take(self, ws: aiohttp.ClientWebSocketResponse, frame: Frame) -> None:
        ledger = self._ledger
        match frame:
            case Event():
                self._hand_on(ws, ledger.event(frame))
            case Ping():
                async with asyncio.timeout(SILENCE_S):
                    await ws.send_str(PONG)
            case Ready(head):
                ledger.ready(head)
                if ledger.rebuilding:
                    self._start_rebuilding(ws)
                elif ledger.replaying:
                    self._set_state("replaying")
                else:
                    self._settled()
            case Done(last_id):
                ledger.done(last_id)
                self._settled()
            case Gap():
                ledger.gap(frame)
                self._start_rebuilding(ws)
        if not isinstance(frame, Event | Ping):
            self._hand_on(ws, [])

    def _start_rebuilding(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._set_state("replaying")
        if self._rebuilding is not None:
            self._rebuilding.cancel()
        self._rebuilding = self._tasks.spawn(self._rebuild(ws))

    async def _rebuild(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        """Fetch the turn while the connection goes on bringing what follows it."""
        try:
            turn = await self._api.turn()
        except Refused as error:
            return self._drop(ws, error)
        except ClientError as error:
            return self._drop(ws, f"cannot rebuild: {error}")
        if ws is not self._ws:
            return
        rebuilt, following = self._ledger.rebuilt(turn)
        self._hand_on(ws, [rebuilt] if rebuilt is not None else [])
        try:
            for event in following:
                self._hand_on(ws, self._ledger.event(event))
        except OtherLog as error:
            return self._drop(ws, str(error))
        self._settled()
        if self._ledger.behind:
            self._drop(ws, "the turn is longer than one answer")

    def _settled(self) -> None:
        self._tries.reset()
        self._set_state("live")

    def _hand_on(self, ws: aiohttp.ClientWebSocketResponse, items: list[Any]) -> None:
        self._mailbox.add(items, self._ledger.checkpoint)
        if self._ledger.overflowing:
            self._drop(ws, "too much is held back behind a missing event")
        if not self._ledger.hole:
            self._stop_hole_timer()
        elif self._hole_timer is None:
            self._hole_timer = asyncio.get_running_loop().call_later(HOLE_S, self._hole_stays, ws)

    def _hole_stays(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._hole_timer = None
        events = self._ledger.give_up()
        if events is None:
            self._drop(ws, "an event did not come")
        else:
            self._hand_on(ws, events)

    def _stop_hole_timer(self) -> None:
        if self._hole_timer is not None:
            self._hole_timer.cancel()
            self._hole_timer = None

    def _drop(self, ws: aiohttp.ClientWebSocketResponse, why: str | Refused) -> None:
        """Give up a connection; its reader notices, and the next one resumes unless the server refused for good."""
        if ws is self._ws and not ws.closed:
            self._lost = why if isinstance(why, Refused) else Unreachable(why)
            self._tasks.spawn(ws.close())

    # -- state -----------------------------------------------------------------------------------------------

    def _usable(self) -> bool:
        if self.state in ("failed", "closed"):
            raise self.cause or Unreachable("closed")
        return self.state == "live" or (self.state == "replaying" and not self._ledger.rebuilding)

    def _end(self, state: StreamState) -> None:
        self._set_state(state)
        self._mailbox.end()

    def _set_state(self, state: StreamState) -> None:
        if state != self.state:
            self.state = state
            self._listeners.tell("state", state)
            self._changed.fire()
