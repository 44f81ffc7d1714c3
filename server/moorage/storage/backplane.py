"""Redis as the cluster needs it: commands, pub/sub and further links. Nothing here waits without a bound."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from moorage.errors import BackplaneError, BackplaneReply, BackplaneUnavailable
from moorage.storage.link import Link
from moorage.ticks import next_tick

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""Both links are looked at this often: a frozen Redis, a half-open link, a demoted master are silent otherwise."""


class _Channel:
    __slots__ = ("callbacks", "confirmed", "sharded", "waiting")

    def __init__(self, sharded: bool) -> None:
        self.sharded = sharded
        self.callbacks: list[Callable[[bytes], None]] = []
        self.confirmed = False
        self.waiting: list[asyncio.Future[None]] = []


class Backplane:
    """A command link and a subscriber link to one Redis, healed by themselves.

    ``url``: see :func:`moorage.storage.url.parse_url`. ``name``: shown by ``CLIENT LIST``. ``timeout_ms``:
    bound of one reply. ``stall_ms``: an unanswered command older than this makes ``available`` false.
    Raises :class:`~moorage.errors.ConfigurationError` for a bad URL or CA file.

    ``generation`` rises whenever the command link and all subscriptions are up (again); then ``on_up`` is
    called. ``on_down`` is called when the first of the links is lost or times out (or stopped). Both are
    lists of plain functions.
    """

    def __init__(
        self, url: str, *, name: str, ca_file: str | None = None, timeout_ms: int = 2000, stall_ms: int = 500
    ) -> None:
        self.generation = 0
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self._url, self._ca_file, self._name = url, ca_file, name
        self._timeout_ms, self._stall_ms = timeout_ms, stall_ms
        self._whole = False
        self._rising = asyncio.Event()
        self._channels: dict[bytes, _Channel] = {}
        self._opened: list[Link] = []
        self._looker: asyncio.TimerHandle | None = None
        self._commands = self._link("commands", on_up=self._check, on_down=self._lost)
        self._subscriber = self._link(
            "subscriber", on_up=self._resubscribe, on_down=self._lost_subscriber, on_message=self._message
        )

    def _link(self, what: str, timeout_ms: int | None = None, **hooks: Any) -> Link:
        return Link(
            self._url,
            name=f"{self._name}:{what}",
            ca_file=self._ca_file,
            timeout_ms=timeout_ms or self._timeout_ms,
            **hooks,
        )

    # -- life ------------------------------------------------------------------------------------------
    async def start(self, timeout_s: float = 5.0) -> bool:
        """Connect. False: not up within ``timeout_s`` seconds; it goes on trying for ever."""
        self._commands.start()
        self._subscriber.start()
        if self._looker is None:
            self._wait_for_look()
        try:
            async with asyncio.timeout(timeout_s):
                await self._rising.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Close all links, those of :meth:`open_link` too. Waiting subscriptions end as unavailable."""
        if self._looker is not None:
            self._looker.cancel()
            self._looker = None
        opened, self._opened = self._opened, []
        await asyncio.gather(*(link.stop() for link in (self._commands, self._subscriber, *opened)))
        for channel in self._channels.values():
            _fail(channel, BackplaneUnavailable("stopped"))
        self._channels.clear()

    def open_link(self, name: str, timeout_ms: int | None = None) -> Link:
        """A started link of its own, e.g. for blocking commands; ``timeout_ms``: its bound of one reply."""
        link = self._link(name, timeout_ms)
        self._opened.append(link)
        link.start()
        return link

    @property
    def available(self) -> bool:
        """The command link is up and no reply is outstanding for more than ``stall_ms``."""
        return self._commands.up and self._commands.stalled_for_ms <= self._stall_ms

    @property
    def trouble(self) -> str:
        """Where Redis is looked for, and why it is not up: the last reason; no part of it is a password."""
        link = self._subscriber if self._commands.up else self._commands
        return f"{link.url}: {link.trouble}"

    @property
    def timeout_ms(self) -> int:
        """Bound of one reply [ms]."""
        return self._timeout_ms

    @property
    def connection(self) -> tuple[str, int]:
        """``run_id`` of the server (empty: unknown) and ``CLIENT ID`` of the last command connection."""
        return self._commands.server_id, self._commands.client_id

    def _wait_for_look(self) -> None:
        loop = asyncio.get_running_loop()
        self._looker = loop.call_at(next_tick(LOOK_INTERVAL_S, loop.time()), self._look)

    def _look(self) -> None:
        self._wait_for_look()
        for link in (self._commands, self._subscriber):
            if link.up and not link.stalled_for_ms:
                link.look()

    # -- commands --------------------------------------------------------------------------------------
    def command(self, *args: bytes | str | int) -> asyncio.Future[Any]:
        """See :meth:`Link.command`."""
        return self._commands.command(*args)

    def publish(self, channel: str, payload: bytes, *, sharded: bool = False) -> asyncio.Future[int]:
        """``PUBLISH`` or ``SPUBLISH``; the result is the number of receivers."""
        return self._commands.command(b"SPUBLISH" if sharded else b"PUBLISH", channel, payload)

    # -- subscriptions ---------------------------------------------------------------------------------
    def subscribe(
        self, channel: str, callback: Callable[[bytes], None], *, sharded: bool = False
    ) -> asyncio.Future[None]:
        """Call ``callback(payload)`` for each message of ``channel`` from now on, over reconnects too.

        ``sharded``: by ``SSUBSCRIBE``; the first subscription of a channel decides.

        The future is done when Redis confirmed it, for the first time; until then it waits for Redis, so give
        it a bound of your own. It raises :class:`BackplaneReply` when Redis refuses (the subscription is then
        gone) and :class:`BackplaneUnavailable` when the backplane stops. What a callback raises is logged.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = channel.encode()
        entry = self._channels.get(key)
        if entry is None:
            entry = self._channels[key] = _Channel(sharded)
            if self._subscriber.up:
                self._send_subscribe(key, entry)
        entry.callbacks.append(callback)
        if entry.confirmed:
            future.set_result(None)
        else:
            entry.waiting.append(future)
        return future

    def unsubscribe(self, channel: str, callback: Callable[[bytes], None]) -> None:
        """Forget ``callback``; with the last one of a channel Redis is told. Unknown ones are ignored."""
        key = channel.encode()
        entry = self._channels.get(key)
        if entry is None or callback not in entry.callbacks:
            return
        entry.callbacks.remove(callback)
        if not entry.callbacks:
            del self._channels[key]
            _fail(entry, BackplaneUnavailable("unsubscribed"))
            self._subscriber.command(b"SUNSUBSCRIBE" if entry.sharded else b"UNSUBSCRIBE", key)
            self._check()

    def _send_subscribe(self, key: bytes, entry: _Channel) -> None:
        def answered(reply: asyncio.Future[Any]) -> None:
            if reply.cancelled() or self._channels.get(key) is not entry:
                return
            error = reply.exception()
            if isinstance(error, BackplaneReply):
                if not entry.waiting:
                    # It worked before: without it we would be deaf and not know.
                    self._subscriber.drop(f"subscription refused: {error}")
                    return
                logger.warning("redis refused a subscription: %s", error)
                del self._channels[key]
                _fail(entry, error)
            elif error is None:
                entry.confirmed = True
                for future in entry.waiting:
                    if not future.done():
                        future.set_result(None)
                entry.waiting.clear()
            self._check()

        command = b"SSUBSCRIBE" if entry.sharded else b"SUBSCRIBE"
        self._subscriber.command(command, key).add_done_callback(answered)

    def _resubscribe(self) -> None:
        for key, entry in self._channels.items():
            self._send_subscribe(key, entry)
        self._check()

    def _lost_subscriber(self) -> None:
        for entry in self._channels.values():
            entry.confirmed = False
        self._lost()

    def _message(self, channel: bytes, payload: bytes) -> None:
        entry = self._channels.get(channel)
        for callback in tuple(entry.callbacks) if entry is not None else ():
            try:
                callback(payload)
            except Exception:
                logger.exception("callback of channel %r failed", channel)

    # -- whole or not ----------------------------------------------------------------------------------
    def _check(self) -> None:
        if self._whole or not (self._commands.up and self._subscriber.up):
            return
        if self._commands.server_id != self._subscriber.server_id:
            # After a failover commands learn by READONLY that their server is none any more; a subscription never does.
            self._subscriber.drop("the commands go to another server")
            return
        if not all(entry.confirmed for entry in self._channels.values()):
            return
        self._whole = True
        self.generation += 1
        self._rising.set()
        self._tell(self.on_up)

    def _lost(self) -> None:
        if self._whole:
            self._whole = False
            self._rising.clear()
            self._tell(self.on_down)

    def _tell(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in tuple(callbacks):
            try:
                callback()
            except Exception:
                logger.exception("backplane callback failed")


def _fail(entry: _Channel, error: BackplaneError) -> None:
    for future in entry.waiting:
        if not future.done():
            future.set_exception(error)
            future.exception()  # nobody has to await a subscription
    entry.waiting.clear()
