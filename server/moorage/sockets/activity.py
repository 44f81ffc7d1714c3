"""Which sessions and machines are alive, told to user interfaces: only what changed, only where somebody
listens."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

from moorage.errors import BackplaneError
from moorage.sockets.background import Background
from moorage.sockets.clients import Client, Clients
from moorage.sockets.presence import Ask, ask_nobody
from moorage.sockets.recipients import USER_SCOPED
from moorage.sockets.updates import Updates
from moorage.storage.state import State

ASK_KIND = "activity"
"""Payloads: ``["machine", account, machine id]``, answered with a bool, and ``["audience", [account, …]]``."""

ACCOUNTS_MAX = 20_000
"""Accounts whose last told state is remembered; forgetting one costs one ephemeral too many."""

IDS_MAX = 1_000
"""The same per account, sessions and machines together."""

ASK_TRIES, ASK_TIMEOUT_S = 3, 1.0
"""A machine that left here may be on a replica that does not answer just now; after these it counts as
gone."""

TELL_TIMEOUT_S = 0.2
"""How long the next news of an audience waits for answers to the last; they say nothing, but pace us."""

AUDIENCE_BATCH = 500
"""Accounts in one message to the peers."""

Kind = Literal["session", "machine"]


class Activity:
    """``listens(account)``: is there a user-scoped socket anywhere. ``ask``: see :data:`presence.Ask`."""

    def __init__(
        self,
        updates: Updates,
        state: State,
        clients: Clients,
        background: Background,
        *,
        listens: Callable[[str], bool] = lambda account: True,
        ask: Ask = ask_nobody,
    ) -> None:
        self._updates = updates
        self._state = state
        self._clients = clients
        self._background = background
        self._listens = listens
        self._ask = ask
        self._told: OrderedDict[str, dict[tuple[Kind, str], tuple[bool, bool]]] = OrderedDict()
        self._stored: OrderedDict[tuple[str, str], bool] = OrderedDict()
        self._reported: dict[str, dict[tuple[Kind, str], None]] = {}
        self._audience: dict[str, None] = {}
        self._telling = False

    def session_alive(self, client: Client, session_id: str, at: int, thinking: bool) -> None:
        """``at`` is epoch ms, by the sender's clock; a time in the future counts as now."""
        self._session(client, session_id, True, at, thinking)

    def session_end(self, client: Client, session_id: str, at: int) -> None:
        self._session(client, session_id, False, at, False)

    def machine_alive(self, client: Client, machine_id: str, at: int) -> None:
        if machine_id != client.machine_id:  # its own is looked after when it leaves
            self._note(client, "machine", machine_id)
        if self._is_news(client.account, "machine", machine_id, True, False):
            self._tell_machine(client.account, machine_id, True, at)

    def connected(self, client: Client) -> None:
        """A machine is alive by connecting; a new user interface has yet to be told everything."""
        if client.machine_id is not None:
            self.machine_alive(client, client.machine_id, _now())
        elif client.scope == "user-scoped":
            self._audience_changed(client.account)
            self._audience[client.account] = None
            if not self._telling:
                self._telling = self._background.spawn(self._tell_audience())

    def disconnected(self, client: Client) -> None:
        """What this socket reported is forgotten: its next words may come to another replica, and when they come
        here again they are news. A machine whose last socket, on any replica, is gone is no longer alive."""
        told = self._told.get(client.account, {})
        for kind, key in self._reported.pop(client.sid, {}):
            told.pop((kind, key), None)
            if kind == "session":
                self._stored.pop((client.account, key), None)
        if client.machine_id is not None and not self._clients.machine(client.account, client.machine_id):
            self._background.spawn(self._machine_left(client.account, client.machine_id, _now()))

    def answer(self, payload: object) -> bool:
        """What this replica says to a peer: is that machine connected here? Or it takes note of an audience."""
        match payload:
            case ["machine", str(account), str(machine_id)]:
                return bool(self._clients.machine(account, machine_id))
            case ["audience", list(accounts)]:
                for account in accounts:
                    if isinstance(account, str):
                        self._audience_changed(account)
        return False

    def _audience_changed(self, account: str) -> None:
        """Somebody new listens: the next sign of life is told again, though nothing changed."""
        self._told.pop(account, None)

    async def _tell_audience(self) -> None:
        try:
            while self._audience:
                batch = list(self._audience)[:AUDIENCE_BATCH]
                for account in batch:
                    del self._audience[account]
                try:
                    async with asyncio.timeout(TELL_TIMEOUT_S * 2):
                        await self._ask(ASK_KIND, ["audience", batch], TELL_TIMEOUT_S)
                except (TimeoutError, BackplaneError):
                    pass  # a peer that missed it tells at the next change
        finally:
            self._telling = False

    def _session(self, client: Client, session_id: str, active: bool, at: int, thinking: bool) -> None:
        account, at = client.account, min(at, _now())
        self._note(client, "session", session_id)
        if self._is_news(account, "session", session_id, active, thinking):
            body = {
                "type": "activity",
                "id": session_id,
                "active": active,
                "activeAt": at,
                "thinking": thinking,
            }
            self._updates.ephemeral(account, USER_SCOPED, None, body)
        if self._stored.get((account, session_id)) is not active:
            self._remember_stored(account, session_id, active)
            self._background.spawn(self._store(account, session_id, active, at))

    def _tell_machine(self, account: str, machine_id: str, active: bool, at: int) -> None:
        body = {"type": "machine-activity", "id": machine_id, "active": active, "activeAt": min(at, _now())}
        self._updates.ephemeral(account, USER_SCOPED, None, body)

    def _note(self, client: Client, kind: Kind, key: str) -> None:
        reported = self._reported.setdefault(client.sid, {})
        reported[kind, key] = None
        if len(reported) > IDS_MAX:
            del reported[next(iter(reported))]

    def _is_news(self, account: str, kind: Kind, key: str, active: bool, thinking: bool) -> bool:
        """Whether this differs from what was told last, and somebody listens; if so it counts as told."""
        if not self._listens(account):
            self._told.pop(account, None)
            return False
        told = self._told.setdefault(account, {})
        self._told.move_to_end(account)
        if told.get((kind, key)) == (active, thinking):
            return False
        told.pop((kind, key), None)
        told[kind, key] = (active, thinking)
        if len(told) > IDS_MAX:
            del told[next(iter(told))]
        if len(self._told) > ACCOUNTS_MAX:
            self._told.popitem(last=False)
        return True

    def _remember_stored(self, account: str, session_id: str, active: bool) -> None:
        self._stored[account, session_id] = active
        self._stored.move_to_end((account, session_id))
        if len(self._stored) > ACCOUNTS_MAX:
            self._stored.popitem(last=False)

    async def _store(self, account: str, session_id: str, active: bool, at: int) -> None:
        try:
            await self._state.set_active(account, session_id, active, at)
        except BackplaneError:
            # The next sign of life tries again.
            self._stored.pop((account, session_id), None)

    async def _machine_left(self, account: str, machine_id: str, at: int) -> None:
        elsewhere = await self._is_elsewhere(account, machine_id)
        if self._clients.machine(account, machine_id):
            return  # back here before the others had answered
        self._told.get(account, {}).pop(("machine", machine_id), None)
        if not elsewhere and self._listens(account):
            self._tell_machine(account, machine_id, False, at)

    async def _is_elsewhere(self, account: str, machine_id: str) -> bool:
        for _ in range(ASK_TRIES):
            try:
                async with asyncio.timeout(ASK_TIMEOUT_S * 1.5):
                    answers, complete = await self._ask(
                        ASK_KIND, ["machine", account, machine_id], ASK_TIMEOUT_S
                    )
            except (TimeoutError, BackplaneError):
                answers, complete = [], False
            found = any(answer is True for answer in answers)
            if found or complete or self._clients.machine(account, machine_id):
                return found
            await asyncio.sleep(ASK_TIMEOUT_S)
        return False


def _now() -> int:
    return int(time.time() * 1000)
