"""A load client with the memory that socket.io-client has: after a cut it names its private id and offset."""

from __future__ import annotations

from typing import Any

from moorage_chaos.accounts import Account
from moorage_chaos.client import Client
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Replica
from moorage_chaos.wires import RawWire


class RecoveringWire(RawWire):
    """Takes any last argument that is a text for its offset, as JavaScript's client does."""

    def __init__(self) -> None:
        super().__init__()
        self.pid: str | None = None
        self.offset: str | None = None
        self.recovered = False

    async def open(self, url: str, auth: dict[str, Any]) -> None:
        names = {"pid": self.pid, "offset": self.offset}
        known = {name: value for name, value in names.items() if value is not None} if self.pid else {}
        await super().open(url, {**known, **auth})

    def _event(self, event: str, args: list[Any], ack_id: int | None) -> None:
        if ack_id is None and isinstance([event, *args][-1], str):
            self.offset = [event, *args][-1]
        super()._event(event, args, ack_id)


class RecoveringClient(Client):
    """Its connects carry ``recovered``: whether the server gave it back the socket that it had."""

    def __init__(self, clients: Clients, account: Account, stem: str, auth: dict[str, Any]) -> None:
        self._memory = RecoveringWire()
        super().__init__(clients, clients.name(stem), account, self._memory, auth, "recovering")
        clients.made.append(self)
        self.returns = 0

    def _on_up(self) -> None:
        pid = self._memory.hello.get("pid")
        if self._memory.pid is not None:
            self.returns += 1
            same = pid == self._memory.pid
            self._history.note("return", process=self.name, client=self.name, recovered=same, sid=self.sid)
        self._memory.pid = pid
        super()._on_up()


async def recovering(
    clients: Clients, account: Account, where: Replica, stem: str = "socket", **auth: Any
) -> RecoveringClient:
    """A connected client; ``cut()`` it and ``connect()`` it again."""
    client = RecoveringClient(clients, account, stem, auth)
    await client.connect(where)
    return client
