"""Events, activity and presence over memory, with a recorder in place of the manager."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from moorage.sockets.activity import Activity
from moorage.sockets.background import Background
from moorage.sockets.clients import Client, Clients, Scope
from moorage.sockets.events import Events
from moorage.sockets.updates import Updates
from moorage.storage.state_memory import MemoryState

from ..http.recorder import Recorder


class World:
    def __init__(self) -> None:
        self.recorder = Recorder()
        self.state = MemoryState()
        self.clients = Clients()
        self.background = Background()
        self.updates = Updates(self.recorder, lambda: self.recorder.up)
        self.listening = True
        self.peer_answers: list[Any] = []
        self.peers_complete = True
        self.asked: list[tuple[str, Any]] = []
        self.activity = Activity(
            self.updates,
            self.state,
            self.clients,
            self.background,
            listens=lambda account: self.listening,
            ask=self.ask,
        )
        self.events = Events(self.clients, self.state, self.updates, self.activity, self.background)
        self._sids = itertools.count(1)

    async def ask(self, kind: str, payload: Any, timeout_s: float) -> tuple[list[Any], bool]:
        self.asked.append((kind, payload))
        return self.peer_answers, self.peers_complete

    def connect(self, account: str = "u", scope: Scope = "user-scoped", **fields: Any) -> Client:
        client = Client(account, scope, sid=f"sid-{next(self._sids)}", **fields)
        self.clients.add(client)
        self.activity.connected(client)
        return client

    def disconnect(self, client: Client) -> None:
        self.clients.remove(client.sid)
        self.activity.disconnected(client)

    def send(self, client: Client | str, event: str, *args: Any) -> asyncio.Future[Any]:
        """As from the wire, with an ack; the future is its first argument."""
        sid = client if isinstance(client, str) else client.sid
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.events.handlers[event](sid, list(args), lambda *answer: future.set_result(answer[0]))
        return future

    async def idle(self) -> None:
        """Until all background work is done."""
        async with asyncio.timeout(10):
            while len(self.background):
                await asyncio.sleep(0)

    def told(self) -> list[Any]:
        """Payloads of all ephemerals so far."""
        return [sent.payload for sent in self.recorder.emitted if sent.event == "ephemeral"]
