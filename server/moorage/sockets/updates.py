"""The two kinds of broadcast, for routes and sockets alike: numbered ``update`` and fleeting
``ephemeral``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from moorage.errors import BackplaneUnavailable
from moorage.sockets.recipients import rooms_for


class Emitter(Protocol):
    """What is needed of :class:`moorage.cluster.local.LocalManager`."""

    def emit_now(
        self, event: str, args: Sequence[Any], rooms: Collection[str], except_: Collection[str] = ()
    ) -> None: ...

    async def emit_counted(
        self,
        counter: str,
        event: str,
        payload: dict[str, Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
    ) -> int: ...


class Updates:
    """``emitter`` delivers. ``ready`` says whether numbered updates can go out now (the backplane is
    there)."""

    def __init__(self, emitter: Emitter, ready: Callable[[], bool] = lambda: True) -> None:
        self._emitter = emitter
        self._ready = ready

    def require(self) -> None:
        """Raises BackplaneUnavailable when an update could not go out: ask before storing what must be
        told."""
        if not self._ready():
            raise BackplaneUnavailable("updates")

    async def update(
        self, account: str, kind: str, target: str | None, body: dict[str, Any], skip: str | None = None
    ) -> tuple[str, int]:
        """Send ``update {id, seq, body, createdAt}`` by a filter of :mod:`recipients`; ``(id, seq)``.

        ``seq`` is dense per account: every filter includes the user-scoped sockets. ``skip`` is a socket that
        gets no copy. Raises BackplaneUnavailable (certainly not sent), BackplaneUnknown (perhaps sent).
        """
        self.require()
        payload = {"id": uuid.uuid4().hex, "seq": 0, "body": body, "createdAt": int(time.time() * 1000)}
        targets = rooms_for(account, kind, target)
        seq = await self._emitter.emit_counted(account, "update", payload, targets, (skip,) if skip else ())
        return str(payload["id"]), seq

    def ephemeral(
        self, account: str, kind: str, target: str | None, body: dict[str, Any], skip: str | None = None
    ) -> None:
        """Send ``ephemeral`` with ``body``: here at once, elsewhere when Redis can; never waits or raises."""
        self._emitter.emit_now("ephemeral", [body], rooms_for(account, kind, target), (skip,) if skip else ())
