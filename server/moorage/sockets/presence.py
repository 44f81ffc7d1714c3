"""Is somebody looking? True and false are facts; not knowing is neither."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.errors import BackplaneError, PresenceUnknown
from moorage.sockets.clients import Clients

Ask = Callable[[str, Any, float], Awaitable[tuple[list[Any], bool]]]
"""``await ask(kind, payload, timeout_s)`` → the answers of all other replicas; False: somebody did not
answer."""

ASK_KIND = "presence"

MARGIN_S = 0.1
"""The peers are given this much less than the whole bound, so that their partial answers still count."""


async def ask_nobody(kind: str, payload: Any, timeout_s: float) -> tuple[list[Any], bool]:
    """The ``ask`` of a replica that is alone."""
    return [], True


class Presence:
    """``timeout_ms`` bounds the whole answer."""

    def __init__(self, clients: Clients, ask: Ask = ask_nobody, timeout_ms: int = 2000) -> None:
        self._clients = clients
        self._ask = ask
        self._timeout_s = timeout_ms / 1000

    def answer(self, account: object) -> bool:
        """What this replica says to a peer's question, and to its own: is a user interface here active?

        It looks at all living sockets of the account, so one that goes changes nothing while another stays.
        """
        if not isinstance(account, str):
            return False
        return any(client.app_state == "active" for client in self._clients.user_scoped(account))

    async def has_active_ui_client(self, account: str) -> bool:
        """Whether any user-scoped socket of the account, on any replica, has reported ``active``.

        Raises PresenceUnknown when nobody active was found and a replica did not answer in time.
        """
        if self.answer(account):
            return True
        try:
            async with asyncio.timeout(self._timeout_s):
                answers, complete = await self._ask(
                    ASK_KIND, account, max(self._timeout_s - MARGIN_S, self._timeout_s / 2)
                )
        except (TimeoutError, BackplaneError):
            raise PresenceUnknown from None
        # Somebody may have connected here while the others were asked.
        if any(answer is True for answer in answers) or self.answer(account):
            return True
        if not complete:
            raise PresenceUnknown
        return False
