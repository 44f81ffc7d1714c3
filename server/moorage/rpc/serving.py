"""Requests that run on a local socket, for callers here and elsewhere.

``delivered`` is what we can prove: "unknown" once written, "yes" when the socket answered something that it can
only have sent after it had read the request (the ack of a later request, the pong of a later ping).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from moorage.errors import Delivered

EndKind = Literal["answer", "gone", "absent"]
"""How a request ends at its socket: with its answer; the socket went; the socket was not there at all."""
OnEnd = Callable[[EndKind, Any], None]
"""``("answer", result)``, ``("gone", delivered)``, ``("absent", None)``; called once."""


LATE_MAX = 256
"""Cancelled requests of one socket whose late answer is still recognised (and counted); older ones are ignored."""


@dataclass(slots=True)
class Run:
    """A request written to a socket and not yet answered. Times are ``time.monotonic()`` seconds."""

    sid: str
    request_id: str
    on_end: OnEnd
    written: float = field(default_factory=time.monotonic)
    ack_id: int = 0


@dataclass(slots=True)
class Line:
    """A socket with running requests. What was written before ``read_until`` was certainly read."""

    runs: dict[str, Run] = field(default_factory=dict)
    read_until: float = 0.0
    pong: float = 0.0
    """Time of its last pong."""

    def delivered(self, run: Run) -> Delivered:
        return "yes" if run.written < self.read_until else "unknown"


class Serving:
    """All running requests of this replica's sockets, by call id."""

    def __init__(
        self,
        send_event: Callable[..., int],
        forget_ack: Callable[[str, int], None],
    ) -> None:
        self._send_event = send_event
        self._forget_ack = forget_ack
        self._runs: dict[str, Run] = {}
        self._lines: dict[str, Line] = {}
        self._cancelled: dict[str, deque[int]] = {}
        self.on_late: Callable[[], None] = lambda: None
        """An answer of a request that nobody waits for any more."""

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._runs

    def is_busy(self, sid: str) -> bool:
        """The socket owes an answer."""
        return sid in self._lines

    def run(self, call_id: str, sid: str, method: str, params: Any, request_id: str, on_end: OnEnd) -> None:
        """Write ``rpc-request {method, params, requestId}`` to ``sid``; ``on_end`` tells how it ended."""
        run = Run(sid, request_id, on_end)
        self._runs[call_id] = run
        line = self._lines.get(sid)
        if line is None:
            line = self._lines[sid] = Line()
        line.runs[call_id] = run
        request = {"method": method, "params": params, "requestId": request_id}
        try:
            run.ack_id = self._send_event(
                sid, "rpc-request", request, on_ack=lambda args: self._answered(call_id, args)
            )
        except (TypeError, ValueError):
            # Params that JSON cannot hold (another implementation's msgpack): nothing was written.
            run.ack_id = 0
        if not run.ack_id and self._take(call_id):
            on_end("absent", None)

    def cancel(self, call_id: str) -> None:
        """Tell the socket ``rpc-cancel {requestId}``; nobody waits for the answer any more."""
        if (run := self._take(call_id)) is not None:
            cancelled = self._cancelled.setdefault(run.sid, deque())
            cancelled.append(run.ack_id)
            if len(cancelled) > LATE_MAX:
                self._forget_ack(run.sid, cancelled.popleft())
            self._send_event(run.sid, "rpc-cancel", {"requestId": run.request_id})

    def delivered(self, call_id: str) -> Delivered:
        run = self._runs.get(call_id)
        return self._lines[run.sid].delivered(run) if run else "unknown"

    def heard(self, sid: str) -> None:
        """A pong of ``sid``: its ping left after the pong before it, so all written before that one arrived."""
        line = self._lines.get(sid)
        if line is not None:
            line.read_until = max(line.read_until, line.pong)
            line.pong = time.monotonic()

    def closed(self, sid: str) -> None:
        """The socket is gone, and with it every answer it owed."""
        self._cancelled.pop(sid, None)
        line = self._lines.get(sid)
        for call_id in list(line.runs) if line is not None else ():
            if line is not None and (run := self._take(call_id)) is not None:
                run.on_end("gone", line.delivered(run))

    def _answered(self, call_id: str, args: list[Any]) -> None:
        run = self._runs.get(call_id)
        if run is None:
            self.on_late()
            return
        line = self._lines[run.sid]
        line.read_until = max(line.read_until, run.written)  # one ordered connection
        self._take(call_id)
        run.on_end("answer", args[0] if args else None)

    def _take(self, call_id: str) -> Run | None:
        run = self._runs.pop(call_id, None)
        if run is not None:
            line = self._lines[run.sid]
            del line.runs[call_id]
            if not line.runs:
                del self._lines[run.sid]
        return run
