"""The sockets of this replica and who they are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from moorage.sockets import rooms

Scope = Literal["user-scoped", "session-scoped", "machine-scoped"]
AppState = Literal["active", "background"]


@dataclass(slots=True)
class Client:
    """One admitted socket. ``session_id`` and ``machine_id`` are set for their scopes only; ``app_state`` is
    None until the client reported one."""

    account: str
    scope: Scope
    session_id: str | None = None
    machine_id: str | None = None
    label: str | None = None
    app_state: AppState | None = None
    sid: str = ""
    calls: bool = False
    """It has called a method."""

    @property
    def identity(self) -> str:
        """Who it is, for recovery: a socket is given back only to the same one."""
        return repr((self.account, self.scope, self.session_id, self.machine_id))

    @property
    def rooms(self) -> tuple[str, ...]:
        """The rooms it enters on connecting."""
        everyone = rooms.user(self.account)
        if self.session_id is not None:
            return (everyone, rooms.session(self.account, self.session_id))
        if self.machine_id is not None:
            return (everyone, rooms.machine(self.account, self.machine_id))
        return (everyone, rooms.user_scoped(self.account))


class Clients:
    """All admitted sockets here, by sid and, for user interfaces and machines, by what they are asked for."""

    def __init__(self) -> None:
        self._by_sid: dict[str, Client] = {}
        self._by_group: dict[tuple[str, str | None], dict[str, Client]] = {}

    def add(self, client: Client) -> None:
        self._by_sid[client.sid] = client
        if client.scope != "session-scoped":
            self._by_group.setdefault((client.account, client.machine_id), {})[client.sid] = client

    def remove(self, sid: str) -> Client | None:
        """The client that is gone; None if it was not there."""
        client = self._by_sid.pop(sid, None)
        if client is not None and client.scope != "session-scoped":
            key = (client.account, client.machine_id)
            group = self._by_group[key]
            del group[sid]
            if not group:
                del self._by_group[key]
        return client

    def get(self, sid: str) -> Client | None:
        return self._by_sid.get(sid)

    def __len__(self) -> int:
        return len(self._by_sid)

    def all(self) -> Collection[Client]:
        """Every admitted socket here."""
        return self._by_sid.values()

    def user_scoped(self, account: str) -> Collection[Client]:
        """The account's user interfaces here."""
        return self._by_group.get((account, None), {}).values()

    def machine(self, account: str, machine_id: str) -> Collection[Client]:
        """The sockets of that machine here: more than one while it reconnects."""
        return self._by_group.get((account, machine_id), {}).values()
