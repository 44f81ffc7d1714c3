"""Appends to the cluster stream, once each and in order, also over the loss of a connection.

While Redis is away or stalled, entries wait here (:data:`WAITING_MAX_ENTRIES`, :data:`WAITING_MAX_BYTES`; beyond
that the oldest is dropped and counted). Entries that were written but not answered when the connection was lost
are settled before anything else is sent: Redis runs the commands of a connection in order, so what it did run is
a prefix of them, and its length is the number of our entries in the stream behind the last one confirmed. The
old connection is closed for certain first (``CLIENT KILL ID``), or the server is another process by now. The
rest is sent again. Where that cannot be told (the data was wiped, or the user may not ask) nothing is sent
again, as a double would be worse, and the entries count as possibly lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, NamedTuple

from moorage.errors import BackplaneError, BackplaneReply, BackplaneUnknown
from moorage.storage.backplane import Backplane

logger = logging.getLogger(__name__)

WAITING_MAX_ENTRIES = 10_000
"""Ten seconds of a busy replica (1000 broadcasts/s)."""
WAITING_MAX_BYTES = 64 * 1024 * 1024
"""What an outage may cost in memory."""
RETRY_S = 0.02
"""Distance of looks at Redis while entries wait."""
CHUNK = 500
"""Entries written at once when Redis is back, so that other commands get between."""
PAGE = 1000
"""Entries per XRANGE while settling."""
STOP_S = 1.0
"""[s] How long a stop goes on writing what waits, be Redis away or not."""

StreamId = tuple[int, int]


def parse_id(text: bytes) -> StreamId:
    """``b"<ms>-<n>"`` as two numbers, which compare as Redis does. Raises :class:`ValueError`."""
    ms, _, n = text.partition(b"-")
    return int(ms), int(n)


async def last_id(command: Any, stream: str) -> bytes:
    """Last id a stream ever gave out; ``0-0`` when there is no such stream. Raises :class:`BackplaneError`."""
    try:
        info = await command("XINFO", "STREAM", stream)
    except BackplaneReply as error:
        if "no such key" in str(error):
            return b"0-0"
        raise
    return bytes(dict(zip(info[::2], info[1::2], strict=True))[b"last-generated-id"])


class _Entry(NamedTuple):
    number: int
    stream: str
    fields: list[bytes | str]
    size: int


class StreamWriter:
    """Counts: ``dropped`` (buffer full or volatile, never written), ``refused`` (by Redis), ``possibly_lost``.

    ``uid`` is that of all entries written here and of no other.
    """

    def __init__(self, backplane: Backplane, *, uid: str, maxlen: int) -> None:
        self.dropped = self.refused = self.possibly_lost = 0
        self._backplane, self._uid, self._maxlen = backplane, uid.encode(), maxlen
        self._appended = 0
        self._waiting: deque[_Entry] = deque()
        self._waiting_bytes = 0
        self._flying = 0  # written, no reply yet
        self._unknown: list[_Entry] = []  # written, lost before the reply; all on `_connection`
        self._returned: list[_Entry] = []  # not written after all
        self._connection = ("", 0)
        self._confirmed: dict[str, bytes] = {}  # stream -> our last entry, or the end of the stream before it
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._stopped = self._told = False

    def start(self) -> None:
        """Begin to send, what was appended before as well."""
        self._stopped = self._told = False
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="stream-writer")

    async def stop(self, timeout_s: float = STOP_S) -> None:
        """Send what waits, within ``timeout_s``; what is left then, and what is appended later, is dropped."""
        if self._task is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._idle.wait()
            except TimeoutError:
                pass
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._give_up()

    def _give_up(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        dropped = len(self._waiting) + len(self._returned)
        unknown = self._flying + len(self._unknown)
        if dropped or unknown:
            logger.warning(
                "stopped: %d cluster messages were not written to redis, of %d more it is not known",
                dropped,
                unknown,
            )
        self.dropped += dropped
        self.possibly_lost += len(self._unknown)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._unknown, self._returned = [], []

    @property
    def pending(self) -> int:
        """Entries that are not yet confirmed."""
        return len(self._waiting) + self._flying + len(self._unknown) + len(self._returned)

    def append(self, stream: str, fields: list[bytes | str], *, volatile: bool = False) -> None:
        """Append an entry. Never waits and never raises; a ``volatile`` entry is not kept for later."""
        if self._stopped:
            self._refuse()
            return
        self._appended += 1
        entry = _Entry(self._appended, stream, fields, 100 + sum(map(len, fields)))
        self._idle.clear()
        held = self._waiting or self._unknown or self._returned or stream not in self._confirmed
        if not held and self._backplane.available:
            self._send(entry)
        elif volatile and not self._backplane.available:
            self.dropped += 1
            self._landed()
        else:
            self._hold(entry)

    def _refuse(self) -> None:
        self.dropped += 1
        if not self._told:
            self._told = True
            logger.warning("the cluster manager is stopped: what is emitted now reaches no other server")

    def _hold(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        self._waiting_bytes += entry.size
        self._trim()
        self._wake.set()

    def _trim(self) -> None:
        while len(self._waiting) > WAITING_MAX_ENTRIES or self._waiting_bytes > WAITING_MAX_BYTES:
            self._waiting_bytes -= self._waiting.popleft().size
            if not self.dropped:
                logger.warning(
                    "redis is away and the buffer is full: the oldest cluster messages are dropped"
                )
            self.dropped += 1

    def _send(self, entry: _Entry) -> asyncio.Future[bytes]:
        self._connection = self._backplane.connection
        future = self._backplane.command(
            "XADD", entry.stream, "MAXLEN", "~", self._maxlen, "*", *entry.fields
        )
        if future.done():  # not even written
            self._returned.append(entry)
            self._landed()
        else:
            self._flying += 1
            future.add_done_callback(partial(self._answered, entry))
        return future

    def _answered(self, entry: _Entry, future: asyncio.Future[bytes]) -> None:
        self._flying -= 1
        error = future.exception()
        if error is None:
            self._confirmed[entry.stream] = future.result()
        elif self._stopped:
            self.possibly_lost += 1  # told when it stopped
        elif isinstance(error, BackplaneUnknown):
            self._unknown.append(entry)
        elif isinstance(error, BackplaneReply):
            if not self.refused:
                logger.error("redis refuses a cluster message: %s", error)
            self.refused += 1
        else:
            self._returned.append(entry)
        self._landed()

    def _landed(self) -> None:
        if (self._unknown or self._returned) and not self._flying:
            self._put_back(self._returned)
            self._returned = []
            self._wake.set()
        if not self.pending:
            self._idle.set()

    def _put_back(self, entries: list[_Entry]) -> None:
        # Of one lost connection some may be known not to be written, before or behind some that must be settled first.
        self._waiting = deque(sorted([*entries, *self._waiting]))
        self._waiting_bytes += sum(entry.size for entry in entries)
        self._trim()

    async def _run(self) -> None:
        try:
            await self._send_for_ever()
        finally:
            self._give_up()  # also where the loop ends without a stop

    async def _send_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            try:
                if self._backplane.available:
                    if self._unknown:
                        await self._settle()
                    await self._pump()
            except BackplaneError:
                pass  # looked at again below
            if self._waiting or self._unknown or self._returned:
                await asyncio.sleep(RETRY_S)
            else:
                self._wake.clear()

    async def _pump(self) -> None:
        while self._waiting and not (self._unknown or self._returned) and self._backplane.available:
            for stream in {entry.stream for entry in self._waiting} - self._confirmed.keys():
                self._confirmed[stream] = await last_id(self._backplane.command, stream)
            last = None
            for _ in range(min(CHUNK, len(self._waiting))):
                entry = self._waiting.popleft()
                self._waiting_bytes -= entry.size
                last = self._send(entry)
            if last is not None:
                await asyncio.wait([last])

    async def _settle(self) -> None:
        """Find out which entries of the lost connection are in the stream; queue the others again."""
        old, now = self._connection, self._backplane.connection
        again: list[_Entry] = []
        lost = 0
        try:
            if not old[0] or not now[0]:
                raise BackplaneReply("the server may not be asked who it is")
            if old[0] == now[0]:
                await self._backplane.command("CLIENT", "KILL", "ID", old[1])
            for stream in dict.fromkeys(entry.stream for entry in self._unknown):
                written = [entry for entry in self._unknown if entry.stream == stream]
                done = await self._count_own(stream)
                if done is None:
                    lost += len(written)
                else:
                    again += written[done:]
        except BackplaneReply:
            again, lost = [], len(self._unknown)
        if lost:
            self.possibly_lost += lost
            logger.warning("%d cluster messages may be lost with a connection to redis", lost)
        self._unknown = []
        self._put_back(again)
        self._landed()

    async def _count_own(self, stream: str) -> int | None:
        """Our entries behind the last confirmed one; None: the stream is another one by now."""
        command = self._backplane.command
        start = self._confirmed[stream]
        if parse_id(await last_id(command, stream)) < parse_id(start):
            del self._confirmed[stream]
            return None
        own = 0
        while page := await command("XRANGE", stream, b"(" + start, "+", "COUNT", PAGE):
            own += sum(1 for _, fields in page if self._uid in fields)
            start = page[-1][0]
        if own:
            self._confirmed[stream] = start
        return own
