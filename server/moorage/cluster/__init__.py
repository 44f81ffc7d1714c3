"""Replicas as one: messages that reach all of them, questions to all of them, who of them lives.

Here: the wire format, the stream and the requests of Socket.IO's Redis Streams adapter, python-socketio's client
managers on top of it, and membership. Not here: what a call or an event means (``rpc``, ``sockets``, above), and
how Redis is reached (``storage``, below). Nothing here imports anything above; what must go up is a callback.

:class:`RedisStreamsManager` works with a plain ``socketio.AsyncServer(client_manager=…)``, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.cluster.broadcast import Answers, BroadcastOperator, RemoteSocket
    from moorage.cluster.emitter import Emitter
    from moorage.cluster.manager import RedisStreamsManager
    from moorage.cluster.server import AsyncServer

__all__ = ["Answers", "AsyncServer", "BroadcastOperator", "Emitter", "RedisStreamsManager", "RemoteSocket"]

_HOMES = {
    "Answers": "broadcast",
    "AsyncServer": "server",
    "BroadcastOperator": "broadcast",
    "Emitter": "emitter",
    "RedisStreamsManager": "manager",
    "RemoteSocket": "broadcast",
}


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: most modules here are used without python-socketio.
    if name in _HOMES:
        return getattr(import_module(f"moorage.cluster.{_HOMES[name]}"), name)
    raise AttributeError(name)
