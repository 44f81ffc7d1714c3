"""Python clients of Moorage: :class:`Daemon` serves methods, :class:`Caller` calls them, :class:`EventStream`
reads the event log of a session.

Here lives what runs outside the server. Of the rest of ``moorage`` it imports ``moorage.errors`` only, and
beside python-socketio, aiohttp and cryptography (extra ``client``) nothing else, so that it stays light.

A daemon::

    daemon = Daemon("http://localhost:3005", token, machine_id="m1")

    @daemon.method("m1:add")
    async def add(params):
        return params["a"] + params["b"]

    asyncio.run(daemon.run())

A caller::

    async with Caller("http://localhost:3005", token) as caller:
        try:
            print(await caller.call("m1:add", {"a": 1, "b": 2}, timeout=5))
        except RpcError as error:
            print(error.code, error.delivered)

Events of a session::

    async with EventStream("http://localhost:3005", token, session_id) as stream:
        await stream.start_task({"topic": "boats"})
        async for item in stream:
            print(item)

``token`` comes from ``await sign_in(url, private_key)``. All times are seconds.
"""

from moorage.client.caller import Caller
from moorage.client.connection import Connection
from moorage.client.daemon import Daemon, Scope
from moorage.client.errors import ClientError, ConnectionLost, Refused, RegistrationError, Unreachable
from moorage.client.event_frames import Checkpoint, Event, Gap, Turn
from moorage.client.event_ledger import Rebuilt, Statistics
from moorage.client.event_stream import EventStream, StreamState
from moorage.client.keeper import State
from moorage.client.signin import Token, sign_in
from moorage.errors import RpcError

__all__ = [
    "Caller",
    "Checkpoint",
    "ClientError",
    "Connection",
    "ConnectionLost",
    "Daemon",
    "Event",
    "EventStream",
    "Gap",
    "Rebuilt",
    "Refused",
    "RegistrationError",
    "RpcError",
    "Scope",
    "State",
    "Statistics",
    "StreamState",
    "Token",
    "Turn",
    "Unreachable",
    "sign_in",
]
