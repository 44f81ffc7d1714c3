"""Carrier to the sockets of this very replica: no Redis, no encoding, no waiting."""

from __future__ import annotations

from typing import Any

from moorage.errors import Delivered
from moorage.rpc.registry import Entry
from moorage.rpc.serving import OnEnd, Serving


class Here:
    """See :class:`moorage.rpc.carrier.Carrier`."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

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
        self._serving.run(call_id, entry.sid, method, params, request_id, on_end)

    def cancel(self, call_id: str) -> None:
        self._serving.cancel(call_id)

    def delivered(self, call_id: str) -> Delivered:
        return self._serving.delivered(call_id)
