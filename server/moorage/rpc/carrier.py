"""The interface by which a call reaches its target, here or on another replica."""

from __future__ import annotations

from typing import Any, Protocol

from moorage.errors import Delivered
from moorage.rpc.registry import Entry
from moorage.rpc.serving import OnEnd


class Carrier(Protocol):
    """Reaches the sockets of some replicas. ``deadline``: ``time.monotonic()`` seconds."""

    def send(
        self,
        call_id: str,
        entry: Entry,
        method: str,
        params: Any,
        request_id: str,
        deadline: float | None,
        on_end: OnEnd,
    ) -> None:
        """Hand the request over once.

        Raises ``BackplaneUnavailable`` if it certainly was not handed over, TypeError or ValueError if ``params``
        cannot be carried. Otherwise ``on_end`` is called at most once; positive evidence that the target is gone
        ends it too.
        """

    def cancel(self, call_id: str) -> None:
        """Nobody waits any more: the target is told, now or when it can be reached again."""

    def delivered(self, call_id: str) -> Delivered:
        """What is known of a request under way."""
