"""``rpc-register``, ``rpc-unregister``, ``rpc-call``, ``rpc-cancel``: from a client's packet to a call, junk included.

A method is served by who sits in its room; joining and leaving the room is all that registering is. The room is
told to all replicas, and ``rpc-registered`` goes out once they know it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Protocol

from moorage.errors import RpcError
from moorage.rpc.calls import Calls
from moorage.rpc.registry import ROOM_PREFIX, Entry, Registry, method_of, rpc_room
from moorage.rpc.request import METHOD_MAX, is_text
from moorage.settings import Settings
from moorage.sockets.background import Background
from moorage.sockets.clients import Clients

log = logging.getLogger(__name__)

TOLD_BOUND_S = 1.5
"""``rpc-registered`` at most this long after ``rpc-register`` (PROTOCOL)."""
RETRY_S = 0.1
"""Distance of tries to announce what could not be told to every replica."""

Reply = Callable[..., None]


class Rooms(Protocol):
    """What is needed of :class:`moorage.cluster.local.LocalManager`."""

    def join(self, sid: str, room: str) -> bool: ...
    def leave(self, sid: str, room: str) -> bool: ...
    def members(self, room: str) -> Collection[str]: ...
    def rooms_of(self, sid: str) -> Collection[str]: ...


class Told(Protocol):
    """What is needed of :class:`moorage.cluster.membership.Membership`."""

    @property
    def last_tell(self) -> int: ...

    async def told(self, number: int) -> bool: ...


class Calling:
    """Handlers of the RPC events; ``handlers`` goes into ``SocketServer.direct``."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        rooms: Rooms,
        registry: Registry,
        calls: Calls,
        background: Background,
        send_event: Callable[..., int],
        told: Told | None,
    ) -> None:
        """``told`` is None for one process without Redis, where every replica knows at once."""
        self._settings = settings
        self._clients = clients
        self._rooms = rooms
        self._registry = registry
        self._calls = calls
        self._background = background
        self._send_event = send_event
        self._told = told
        self._joining = False
        self._methods: dict[str, int] = {}
        self._local_only: set[tuple[str, str]] = set()
        self._retrying = False
        registry.on_superseded = self.superseded

    @property
    def handlers(self) -> dict[str, Callable[[str, list[Any], Reply | None], None]]:
        """Event name -> handler."""
        return {
            "rpc-register": self.on_register,
            "rpc-unregister": self.on_unregister,
            "rpc-call": self.on_call,
            "rpc-cancel": self.on_cancel,
        }

    # -- events ----------------------------------------------------------------------------------------
    def on_register(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client, payload = self._clients.get(sid), _payload(args)
        if client is None:
            return
        method, resumable = payload.get("method"), payload.get("resumable") is True
        problem = None
        if not is_method(method):
            problem = "Invalid method name"
        else:
            room = rpc_room(client.account, str(method))
            full = self._methods.get(sid, 0) >= self._settings.rpc_max_methods_per_socket
            if full and sid not in self._rooms.members(room):
                problem = "Too many methods"
        if problem is not None:
            self._send_event(sid, "rpc-error", {"type": "register", "error": problem})
            if reply is not None:
                reply({"ok": False, "error": problem})
            return
        number = self._join(room, sid, resumable)
        if reply is not None:
            reply({"ok": True})
        self._announce(sid, room, number)

    def on_unregister(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client, method = self._clients.get(sid), _payload(args).get("method")
        if client is None:
            return
        if not is_method(method):
            if reply is not None:
                reply({"ok": False, "error": "Invalid method name"})
            return
        self._rooms.leave(sid, rpc_room(client.account, str(method)))
        self._send_event(sid, "rpc-unregistered", {"method": method})
        if reply is not None:
            reply({"ok": True})

    def on_call(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client = self._clients.get(sid)
        if client is None:
            return
        client.calls = True

        def answer(ack: dict[str, Any]) -> None:
            if reply is not None:
                try:
                    reply(ack)
                except (TypeError, ValueError):
                    reply(RpcError("internal_error").as_ack())

        self._calls.start(sid, client.account, args[0] if args else None, answer)

    def on_cancel(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client, request_id = self._clients.get(sid), _payload(args).get("requestId")
        if client is None:
            return
        found = isinstance(request_id, str) and self._calls.cancel(client.account, request_id)
        if reply is not None:
            reply({"ok": True} if found else {"ok": False, "error": "No such call"})

    # -- rooms -----------------------------------------------------------------------------------------
    def joined(self, namespace: str, room: str, sid: str) -> None:
        """A socket entered a room, by its own wish or by a peer's cluster request."""
        if namespace == "/" and room.startswith(ROOM_PREFIX):
            self._methods[sid] = self._methods.get(sid, 0) + 1
            if not self._joining:
                self._registry.join(room, sid)

    def left(self, namespace: str, room: str, sid: str) -> None:
        """A socket left a room, or went."""
        if namespace == "/" and room.startswith(ROOM_PREFIX):
            self._local_only.discard((sid, room))
            self._registry.leave(room, sid)
            left = self._methods.pop(sid, 1) - 1
            if left:
                self._methods[sid] = left

    def superseded(self, entry: Entry) -> None:
        """A newer registration serves: the older socket is told and leaves the room. Its running calls stay."""
        method = method_of(entry.room)
        log.warning("method served by several sockets, the newest wins method=%s", method.rpartition(":")[2])
        self._send_event(entry.sid, "rpc-superseded", {"method": method})
        if not self._rooms.leave(entry.sid, entry.room):
            self._registry.leave(entry.room, entry.sid)

    def _join(self, room: str, sid: str, resumable: bool) -> int:
        self._joining = True
        try:
            self._rooms.join(sid, room)
        finally:
            self._joining = False
        # Also when it was in the room already: registering again makes it the newest.
        return self._registry.join(room, sid, resumable)

    # -- recovery --------------------------------------------------------------------------------------
    def resumable_rooms(self, sid: str) -> list[str]:
        """The rooms that this socket serves as resumable."""
        return [room for room in self._rooms.rooms_of(sid) if self._registry.is_resumable(room, sid)]

    def restore(self, sid: str, room: str, resumable: bool) -> bool:
        """A recovered socket had registered in ``room``; False: that is no room of a method.

        Where another socket has registered meanwhile, that one keeps the method.
        """
        if not room.startswith(ROOM_PREFIX):
            return False
        entry = self._registry.resolve(room)
        if entry is None or entry.sid == sid:
            self._join(room, sid, resumable)
        else:
            told = {"method": method_of(room)}
            asyncio.get_running_loop().call_soon(self._send_event, sid, "rpc-superseded", told)
        return True

    # -- telling ---------------------------------------------------------------------------------------
    def _announce(self, sid: str, room: str, number: int) -> None:
        if self._told is None:
            self._registered(sid, room, "cluster")
        elif not self._background.spawn(self._announce_when_told(sid, room, number, self._told)):
            self._registered(sid, room, "local")

    async def _announce_when_told(self, sid: str, room: str, number: int, told: Told) -> None:
        try:
            everybody = await asyncio.wait_for(told.told(number), TOLD_BOUND_S)
        except TimeoutError:
            everybody = False
        if not everybody and sid in self._rooms.members(room):
            self._local_only.add((sid, room))
            if not self._retrying:
                self._retrying = self._background.spawn(self._announce_again(told))
        self._registered(sid, room, "cluster" if everybody else "local")

    def _registered(self, sid: str, room: str, scope: str) -> None:
        if sid in self._rooms.members(room):
            self._send_event(sid, "rpc-registered", {"method": method_of(room), "scope": scope})

    async def _announce_again(self, told: Told) -> None:
        """Until every replica knows, or nobody waits for it any more. One task for all that are ``local``."""
        try:
            while self._local_only:
                await asyncio.sleep(RETRY_S)
                waiting = set(self._local_only)
                try:
                    everybody = await asyncio.wait_for(told.told(told.last_tell), TOLD_BOUND_S)
                except TimeoutError:
                    continue
                if everybody:
                    for sid, room in waiting & self._local_only:
                        self._registered(sid, room, "cluster")
                    self._local_only -= waiting
        finally:
            self._retrying = False


def is_method(value: object) -> bool:
    """Whether ``value`` can name a method: text of 1 to 256 characters, encodable as UTF-8."""
    return isinstance(value, str) and 0 < len(value) <= METHOD_MAX and is_text(value)


def _payload(args: list[Any]) -> dict[str, Any]:
    return args[0] if args and isinstance(args[0], dict) else {}
