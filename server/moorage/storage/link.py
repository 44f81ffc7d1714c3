"""One connection to Redis that pipelines by loop tick, never waits without a bound and heals itself.

Replies come in the order of the commands, so the only state is a queue of futures: cancelling one leaves its
place in the queue, and its reply is dropped when it comes. Ages are counted on a clock that stands still
while the event loop does: a process that was stopped must not blame Redis for the silence.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.storage.connection import Connection
from moorage.storage.lookup import Lookup
from moorage.storage.url import parse_url
from moorage.ticks import next_tick

logger = logging.getLogger(__name__)

BACKOFF_MIN_S = 0.02
BACKOFF_MAX_S = 0.25
"""Reconnect delays double between these, full jitter: back well inside a second, yet no storm of connects."""
CONNECT_S = 0.5
"""Bound of one TCP connect. A pod that is gone answers nothing, and a resolver may still tell its address: waiting long
for it is not to hold us up when the name leads to the new one. The kernel repeats a lost SYN after 1 s; to begin anew
is sooner."""
CONNECT_TLS_S = 1.5
"""The same with the handshake's round trips."""
LOG_INTERVAL_S = 10.0
"""The same reason is logged at most this often, however often it takes the link down."""
TICK_S = 0.1
"""How often the oldest outstanding command is looked at; at its bound it is looked at all the same."""
GROWTH_S = 0.15
"""An age grows at most by this between two looks: what is more, the loop stood still."""

REFUSALS = ("LOADING", "READONLY", "MASTERDOWN", "NOAUTH", "WRONGPASS")
"""Error replies that speak about the server, not about the command: nothing was done, and this is not a Redis
we can work with. The connection is renewed, which after a failover finds the new master by its name."""


REPLICA = "READONLY: this Redis is a replica"

_MESSAGES = (b"message", b"smessage")


class _Refused(Exception):
    """Redis is there but not usable; the text is the reason."""


class Link:
    """A connection to the Redis at ``url``. Create and use it in one running event loop.

    ``name``: shown by ``CLIENT LIST``. ``timeout_ms``: bound of each reply and of connecting; over it the
    connection is dropped and everything outstanding ends as unknown. ``on_up`` / ``on_down`` are called after
    each change; ``on_message(channel, payload)`` makes this a pub/sub link (RESP2): published messages go
    there, everything else stays a reply. Callbacks are synchronous; what they raise is logged.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        ca_file: str | None = None,
        timeout_ms: int = 2000,
        on_up: Callable[[], None] | None = None,
        on_down: Callable[[], None] | None = None,
        on_message: Callable[[bytes, bytes], None] | None = None,
    ) -> None:
        self.url = parse_url(url)
        self.name = name
        self.up = False
        self.client_id = 0
        """Number of this connection at the server (``CLIENT ID``)."""
        self.server_id = ""
        """``run_id`` of the server process; empty when it may not be asked."""
        self._ssl = self.url.tls(ca_file)
        self._lookup = Lookup(self.url.host, self.url.port)
        self._timeout_s = timeout_ms / 1000
        self._on_up, self._on_down, self._on_message = on_up, on_down, on_message
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._down = asyncio.Event()
        self._rising = asyncio.Event()
        self._reason = ""
        self._logged: dict[str, float] = {}  # reason -> when
        self._outage: set[str] = set()  # reasons logged since the link was up
        self._backoff = BACKOFF_MIN_S
        self._reader: Any = None
        self._queue: list[bytes] = []
        self._queued: list[asyncio.Future[Any]] = []
        self._sent: deque[asyncio.Future[Any]] = deque()
        self._marks: deque[tuple[int, float]] = deque()  # (commands sent up to here, when)
        self._count_sent = self._count_replied = 0
        self._watch: asyncio.TimerHandle | None = None
        self._clock_s = self._tick_at = 0.0

    # -- life ------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin to connect, and to reconnect for ever."""
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._run(), name=f"redis-link {self.name}")

    async def stop(self) -> None:
        """Close for good. Outstanding commands end as unknown; new ones as unavailable."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._lookup.close()
        connection = self._connection
        if connection is not None:
            self._drop(connection, "stopped")
            await asyncio.wait([connection.closed], timeout=1.0)

    async def wait_up(self, timeout_s: float) -> bool:
        """Whether the link is up within ``timeout_s`` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._rising.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        while True:
            self._down.clear()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._connect()
                    await self._greet()
            except TimeoutError:
                self._fail("no answer in time")
            except (OSError, _Refused, BackplaneReply) as error:
                self._fail(str(error))
            except (BackplaneUnknown, BackplaneUnavailable):
                self._fail(self._reason)
            except Exception as error:  # whatever answers there, it must not end the link
                self._fail(f"not a usable Redis: {type(error).__name__}")
            else:
                self._backoff = BACKOFF_MIN_S
                self._raise_up()
                await self._down.wait()
            await asyncio.sleep(random.uniform(0, self._backoff))
            self._backoff = min(self._backoff * 2, BACKOFF_MAX_S)

    async def _connect(self) -> None:
        url = self.url
        if url.scheme == "unix":
            await self._loop.create_unix_connection(self._attach, url.path)
            return
        bound_s = CONNECT_TLS_S if self._ssl else CONNECT_S
        failure = OSError("the name has no address")
        for address in await self._lookup.addresses():
            try:
                async with asyncio.timeout(bound_s):
                    await self._loop.create_connection(
                        self._attach,
                        *(address, url.port),
                        ssl=self._ssl,
                        server_hostname=url.host if self._ssl else None,
                    )
            except OSError as error:
                failure = error
            else:
                return
        raise failure

    def _attach(self) -> Connection:
        self._reader = hiredis.Reader(replyError=BackplaneReply, notEnoughData=_MORE)
        self._count_sent = self._count_replied = 0
        self._connection = Connection(
            received=self._received,
            lost=self._drop,
            user_timeout_ms=0 if self.url.scheme == "unix" else int(self._timeout_s * 1000),
        )
        return self._connection

    async def _greet(self) -> None:
        url = self.url
        hello: list[bytes | str] = [b"HELLO", b"2"]
        if url.password is not None:
            hello += [b"AUTH", url.user or "default", url.password]
        # Redis refuses names with spaces, line ends or anything beyond ASCII.
        hello += [b"SETNAME", re.sub(r"[^!-~]", "_", self.name)]
        # PING is refused while the server loads its data, HELLO is not.
        commands: list[tuple[bytes | str | int, ...]] = [tuple(hello), (b"PING",)]
        if url.db:
            commands.append((b"SELECT", url.db))
        replies = [self._enqueue(command) for command in commands]
        info = self._enqueue((b"INFO", b"server"))
        greeting = await replies[0]
        facts = dict(zip(greeting[::2], greeting[1::2], strict=True))
        if facts.get(b"role") not in (b"master", None):
            raise _Refused(REPLICA)
        self.client_id = int(facts.get(b"id", 0))
        for reply in replies[1:]:
            await reply
        try:
            found = re.search(rb"run_id:(\w+)", await info)
        except BackplaneReply:  # a user without this right; what needs the id does without
            found = None
        self.server_id = found[1].decode() if found else ""
        if self._connection is None:  # lost with the last reply
            raise BackplaneUnavailable(self._reason)

    def _raise_up(self) -> None:
        self.up = True
        self._rising.set()
        if self._outage or not self._logged:
            log = logger.warning if self._outage else logger.info
            log("redis link %s is up (%s)", self.name, self.url)
            self._outage.clear()
        self._call(self._on_up)

    @property
    def trouble(self) -> str:
        """Why the link is not up, or was not the last time; no part of it is a password."""
        return self._reason or "no answer yet"

    def _fail(self, reason: str) -> None:
        self._reason = reason
        if self._connection is not None:
            self._drop(self._connection, reason)
        self._log_down(reason)

    def _log_down(self, reason: str) -> None:
        now = self._loop.time()
        if reason not in self._outage and now - self._logged.get(reason, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._outage.add(reason)
            self._logged[reason] = now
            logger.warning("redis link %s is down (%s): %s", self.name, self.url, reason)

    def drop(self, reason: str) -> None:
        """Give this connection up and connect anew, not at once: what was wrong may still be."""
        if self._connection is not None:
            self._backoff = BACKOFF_MAX_S
            self._drop(self._connection, reason)

    def _drop(self, connection: Connection, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._reason = reason
        if connection.transport is not None:
            connection.transport.abort()
        was_up, self.up = self.up, False
        self._rising.clear()
        queued, self._queued, self._queue = self._queued, [], []
        sent, self._sent = self._sent, deque()
        self._marks.clear()
        for future in sent:
            _end(future, BackplaneUnknown(reason))
        for future in queued:
            _end(future, BackplaneUnavailable(reason))
        self._down.set()
        if was_up:
            if self._task is not None:
                self._log_down(reason)
            self._call(self._on_down)

    def _call(self, callback: Callable[..., None] | None, *args: Any) -> None:
        if callback is not None:
            try:
                callback(*args)
            except Exception:
                logger.exception("redis link %s: callback failed", self.name)

    # -- commands --------------------------------------------------------------------------------------
    def command(self, *args: bytes | str | int) -> asyncio.Future[Any]:
        """Send one command at the end of this loop tick, in one write with all others of the tick.

        The future may be cancelled or forgotten at any time. It raises :class:`BackplaneUnavailable` (nothing
        was done), :class:`BackplaneUnknown` (written, no reply) or :class:`BackplaneReply` (an error reply).
        Raises :class:`UnicodeEncodeError` at once for text that is no UTF-8 (lone surrogates).
        """
        connection = self._connection
        if not self.up or connection is None or connection.full:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            full = connection is not None and connection.full
            why = "output buffer is full" if full else f"Redis is not connected: {self.trouble}"
            _end(future, BackplaneUnavailable(why))
            return future
        return self._enqueue(args)

    def look(self) -> None:
        """Ask the server who it is: a frozen one gives no reply in time, one that is no master any more is left.

        A link that only listens, or only publishes, is not told by an error after a failover.
        """
        connection = self._connection

        def answered(reply: asyncio.Future[Any]) -> None:
            if connection is None or reply.cancelled() or reply.exception() is not None:
                return
            facts = reply.result()
            if dict(zip(facts[::2], facts[1::2], strict=True)).get(b"role") not in (b"master", None):
                self._drop(connection, REPLICA)

        self.command(b"HELLO").add_done_callback(answered)

    def _enqueue(self, args: tuple[bytes | str | int, ...]) -> asyncio.Future[Any]:
        packed = hiredis.pack_command(args)
        future = self._loop.create_future()
        if self._connection is None:
            _end(future, BackplaneUnavailable(self._reason))
            return future
        if not self._queue:
            self._loop.call_soon(self._flush)
        self._queue.append(packed)
        self._queued.append(future)
        return future

    def _flush(self) -> None:
        if not self._queue or self._connection is None or self._connection.transport is None:
            return
        data = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
        self._sent.extend(self._queued)
        self._count_sent += len(self._queued)
        self._queue, self._queued = [], []
        if self._watch is None:
            self._tick_at = self._loop.time()
            self._watch = self._loop.call_at(self._next_look(self._timeout_s), self._tick)
        self._marks.append((self._count_sent, self._clock()))
        self._connection.transport.write(data)

    def _received(self, connection: Connection, data: bytes) -> None:
        if connection is not self._connection:
            return
        reader, sent, on_message = self._reader, self._sent, self._on_message
        refused = ""
        replied = 0
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _MORE:
                if (
                    on_message is not None
                    and type(reply) is list
                    and len(reply) == 3
                    and reply[0] in _MESSAGES
                ):
                    self._call(on_message, reply[1], reply[2])
                    continue
                future = sent.popleft()
                replied += 1
                if isinstance(reply, BackplaneReply):
                    if str(reply).startswith(REFUSALS):
                        refused = refused or str(reply)
                        _end(future, BackplaneUnavailable(str(reply)))
                    else:
                        _end(future, reply)
                elif not future.done():
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            # IndexError: a reply nobody asked for. Whatever it is, the pairing can no longer be trusted.
            self._drop(connection, "not a Redis protocol")
            return
        self._count_replied += replied
        marks = self._marks
        while marks and marks[0][0] <= self._count_replied:
            marks.popleft()
        if refused:
            self._drop(connection, refused)

    # -- age -------------------------------------------------------------------------------------------
    def _clock(self) -> float:
        return self._clock_s + min(self._loop.time() - self._tick_at, GROWTH_S)

    def _next_look(self, left_s: float) -> float:
        now = self._loop.time()
        return min(next_tick(TICK_S, now), now + left_s)

    def _tick(self) -> None:
        self._clock_s, self._tick_at = self._clock(), self._loop.time()
        self._watch = None
        if not self._marks or self._connection is None:
            return
        left_s = self._timeout_s - (self._clock_s - self._marks[0][1])
        if left_s <= 0:
            self._drop(self._connection, "no reply in time")
        else:
            self._watch = self._loop.call_at(self._next_look(max(left_s, 0.001)), self._tick)

    @property
    def stalled_for_ms(self) -> float:
        """Age [ms] of the oldest command without a reply; 0 when there is none."""
        return (self._clock() - self._marks[0][1]) * 1000 if self._marks else 0.0


_MORE = object()


def _is_message(reply: Any) -> bool:
    return type(reply) is list and len(reply) == 3 and reply[0] in _MESSAGES


def _end(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # counts as looked at: nobody has to await a command
