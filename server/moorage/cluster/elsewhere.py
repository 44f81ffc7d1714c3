"""Rooms and the end of sockets by python-socketio's own methods, wherever the socket is.

What acts on a socket of this process waits for what was emitted before (:meth:`FanOut.settled`); for a socket of
another node the order is that of the stream. Names of rooms are strings everywhere, as 5 and "5" are one room here and
two in JavaScript.
"""

from __future__ import annotations

from typing import Any

from moorage.cluster import wire
from moorage.cluster.utilities import Utilities


class Elsewhere(Utilities):
    """Each method that is not a coroutine is about the sockets of this process."""

    def join(self, sid: str, room: Any, namespace: str = "/") -> bool:
        """See :meth:`LocalManager.join`."""
        return super().join(sid, str(room), namespace)

    def leave(self, sid: str, room: Any, namespace: str = "/") -> bool:
        """See :meth:`LocalManager.leave`."""
        return super().leave(sid, str(room), namespace)

    def basic_enter_room(self, sid: str, namespace: str, room: Any, eio_sid: str | None = None) -> None:
        """See :meth:`LocalManager.basic_enter_room`."""
        super().basic_enter_room(sid, namespace, str(room), eio_sid)

    async def _is_here(self, sid: str, namespace: str) -> bool:
        if self.eio_sid_from_sid(sid, namespace) is None:
            return False
        await self.settled()
        return self.eio_sid_from_sid(sid, namespace) is not None

    async def enter_room(self, sid: str, namespace: str, room: str, eio_sid: str | None = None) -> None:
        """A socket here, or one that another node knows, joins ``room``."""
        if await self._is_here(sid, namespace):
            await super().enter_room(sid, namespace, room, eio_sid)
        else:
            self.append(namespace, wire.SOCKETS_JOIN, {"opts": wire.opts([sid]), "rooms": [str(room)]})

    async def leave_room(self, sid: str, namespace: str, room: str) -> None:
        """The opposite of :meth:`enter_room`."""
        if await self._is_here(sid, namespace):
            await super().leave_room(sid, namespace, room)
        else:
            self.append(namespace, wire.SOCKETS_LEAVE, {"opts": wire.opts([sid]), "rooms": [str(room)]})

    async def close_room(self, room: str, namespace: str) -> None:
        """Everybody leaves ``room``, on all nodes."""
        await self.settled()
        await super().close_room(str(room), namespace)
        self.append(namespace, wire.SOCKETS_LEAVE, {"opts": wire.opts([room]), "rooms": [str(room)]})

    async def can_disconnect(self, sid: str, namespace: str) -> bool:
        """True for a socket here; any other is disconnected by the node that has it."""
        if self.eio_sid_from_sid(sid, namespace) is not None:
            await self.settled()
            return self.is_connected(sid, namespace)
        self.append(namespace, wire.DISCONNECT_SOCKETS, {"opts": wire.opts([sid]), "close": False})
        return False

    async def disconnect(self, sid: str, namespace: str, **kwargs: Any) -> None:
        """Forget a socket here; one elsewhere is disconnected there. Waits for nothing."""
        if self.eio_sid_from_sid(sid, namespace) is not None or kwargs.get("ignore_queue"):
            await super().disconnect(sid, namespace, **kwargs)
        else:
            await self.can_disconnect(sid, namespace)
