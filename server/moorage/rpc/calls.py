"""The life of a call at its caller's replica (PROTOCOL, "RPC: order of events"). No I/O: sockets, Redis and the
clock are reached through what the composer hands in.

    start ──> waiting (nobody serves; ends after the grace) ──> sent ──> ended
                 ^                                               │
                 └── the target is gone before the request ──────┘
                     reached it, or it is resumable and the caller waits
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from moorage.errors import BackplaneUnavailable, Delivered, RpcError
from moorage.rpc.carrier import Carrier
from moorage.rpc.foreign import FOREIGN, Foreign
from moorage.rpc.registry import Entry, Registry, rpc_room
from moorage.rpc.request import METHOD_MAX, Request, is_text
from moorage.rpc.serving import EndKind
from moorage.settings import Settings

log = structlog.get_logger("moorage.rpc")

Answer = Callable[[dict[str, Any]], None]
"""Receives the ack of ``rpc-call``."""


@dataclass(slots=True, eq=False)
class Call:
    """One call between its arrival and its end. Times are ``time.monotonic()`` seconds."""

    id: str
    account: str
    request: Request
    callers: list[tuple[str, Answer]]
    room: str
    deadline: float | None
    arrived: float = field(default_factory=time.monotonic)
    entry: Entry | None = None
    lost: Entry | None = None
    """The target that was found gone; not tried again, even while the registry still holds it."""
    attempt: int = 0
    reached: bool = False
    """A request of this call was (or may have been) written to a target."""
    again: bool = False
    """An earlier try had reached a target when the one under way was sent."""
    waited_since: float | None = None
    waits_until: float = 0.0
    timer: asyncio.TimerHandle | None = None
    watcher: Callable[[], None] | None = None
    delivered: Delivered = "no"

    @property
    def leg(self) -> str:
        """Id of the request now under way: each try of a call is a request of its own to the replica that runs it."""
        return self.id if self.attempt == 1 else f"{self.id}.{self.attempt}"

    @property
    def elapsed_s(self) -> float:
        """Since its arrival."""
        return time.monotonic() - self.arrived


class Calls:
    """All calls whose caller is on this replica."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        here: Carrier,
        elsewhere: Carrier | None = None,
        foreign: Foreign | None = None,
    ) -> None:
        """``elsewhere``: carrier to members; ``foreign``: to nodes that are none. None without Redis."""
        self._settings = settings
        self._foreign = foreign
        self._registry = registry
        self._here = here
        self._elsewhere = elsewhere
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._calls: dict[str, Call] = {}
        self._by_request: dict[tuple[str, str], Call] = {}
        self._by_caller: dict[str, set[Call]] = {}
        # upward
        self.notify: Callable[[str, str, dict[str, Any]], object] = lambda sid, event, payload: None
        self.on_ended: Callable[[Call, str], None] = lambda call, result: None
        self.on_late: Callable[[], None] = lambda: None
        self.on_evidence: Callable[[str], None] = lambda kind: None
        """A target here or on a foreign node was found gone; the carrier to members tells its own."""
        self.on_waited: Callable[[float], None] = lambda seconds: None

    def __len__(self) -> int:
        return len(self._calls)

    def is_busy(self, sid: str) -> bool:
        """The socket waits for a call of its own."""
        return sid in self._by_caller

    # -- from the caller -------------------------------------------------------------------------------
    def start(self, sid: str, account: str, payload: Any, answer: Answer) -> None:
        """A client's ``rpc-call``. ``answer`` is called exactly once, unless the caller goes away first."""
        self._count += 1
        call_id = f"{self._prefix}{self._count:x}"
        try:
            request = Request.parse(payload, self._settings.rpc_call_timeout_max_ms, call_id)
            mine = self._by_caller.setdefault(sid, set())
            if len(mine) >= self._settings.rpc_max_in_flight_per_socket:
                raise RpcError("overloaded")
            running = self._by_request.get((account, request.request_id))
            if running is not None and running.request.method != request.method:
                raise RpcError("invalid_params", error="Invalid parameters: requestId is in use")
            if running is not None and len(running.callers) >= self._settings.rpc_max_in_flight_per_socket:
                raise RpcError("overloaded")
        except RpcError as error:
            method = payload.get("method") if isinstance(payload, dict) else None
            if not isinstance(method, str) or len(method) > METHOD_MAX or not is_text(method):
                method = ""
            self._refuse(error, sid, account, method, answer)
            return
        if running is not None:
            running.callers.append((sid, answer))
            mine.add(running)
            if running.watcher is not None:
                self._tell_waiting(running, sid)
            return
        call = Call(
            id=call_id,
            account=account,
            request=request,
            callers=[(sid, answer)],
            room=rpc_room(account, request.method),
            deadline=None if request.timeout_ms is None else time.monotonic() + request.timeout_ms / 1000,
        )
        self._calls[call.id] = call
        self._by_request[(account, request.request_id)] = call
        mine.add(call)
        self._dispatch(call)

    def cancel(self, account: str, request_id: str) -> bool:
        """``rpc-cancel``: the target is told, the call ends with ``cancelled``. False: no such call."""
        call = self._by_request.get((account, request_id))
        if call is None:
            return False
        self._abandon(call)
        self._fail(call, "cancelled")
        return True

    def caller_gone(self, sid: str) -> None:
        """Nobody waits on ``sid`` any more; calls without another caller are cancelled."""
        for call in self._by_caller.pop(sid, set()):
            call.callers = [(other, answer) for other, answer in call.callers if other != sid]
            if not call.callers:
                self._abandon(call)
                self._fail(call, "cancelled")

    def end_all(self, code: str = "target_disconnected") -> None:
        """The replica leaves: every call still here gets a typed end."""
        for call in list(self._calls.values()):
            self._abandon(call)
            self._fail(call, code)

    # -- towards the target ----------------------------------------------------------------------------
    def _dispatch(self, call: Call) -> None:
        entry = self._registry.resolve(call.room)
        if entry is None or entry == call.lost or (call.reached and not entry.resumable):
            # Only a resumable target may be sent again what another may have run.
            self._wait(call)
            return
        if any(entry.sid == sid for sid, _ in call.callers):
            self._fail(call, "target_disconnected" if call.reached else "self_call")
            return
        self._stop_waiting(call)
        carrier = self._carrier(entry)
        if carrier is None:
            self._fail(call, "backplane_unavailable")
            return
        call.again = call.reached
        call.entry = entry
        call.attempt += 1
        attempt = call.attempt
        if call.deadline is None:
            call.deadline = time.monotonic() + self._settings.rpc_call_timeout_ms / 1000
        call.reached = True
        self._learn(call, "unknown")
        self._arm(call, call.deadline, self._timed_out)

        def on_end(kind: EndKind, value: Any) -> None:
            self._ended(call, attempt, kind, value)

        request = call.request
        try:
            carrier.send(
                call.leg, entry, request.method, request.params, request.request_id, call.deadline, on_end
            )
        except BackplaneUnavailable:
            self._not_sent(call, "backplane_unavailable")
        except (TypeError, ValueError) as error:
            text = f"Invalid parameters: params cannot be carried ({type(error).__name__})"
            self._not_sent(call, "invalid_params", text)

    def _not_sent(self, call: Call, code: str, text: str | None = None) -> None:
        if call.again:
            self._fail(call, "target_disconnected")
        else:
            call.delivered = "no"
            self._fail(call, code, text)

    def _carrier(self, entry: Entry) -> Carrier | None:
        if entry.replica == self._registry.replica:
            return self._here
        return self._foreign if entry.replica == FOREIGN else self._elsewhere

    def _ended(self, call: Call, attempt: int, kind: EndKind, value: Any) -> None:
        if call.id not in self._calls or attempt != call.attempt:
            if kind == "answer":
                self.on_late()
            return
        if kind == "answer":
            self._succeed(call, value)
            return
        if kind == "gone" and call.entry is not None:
            if call.entry.replica == self._registry.replica:
                self.on_evidence("socket_gone")
            elif call.entry.replica == FOREIGN:
                self.on_evidence("look_ups")
        resumable = call.entry is not None and call.entry.resumable
        call.lost, call.entry = call.entry, None
        if kind == "absent":
            # The request reached nobody: the call stands where it stood before it was sent.
            call.reached = call.again
            if not call.reached:
                call.delivered = "no"
            self._dispatch(call)
            return
        self._learn(call, value)
        if resumable and call.request.on_target_lost == "wait":
            self._dispatch(call)
        else:
            self._fail(call, "target_disconnected")

    @staticmethod
    def _learn(call: Call, delivered: Delivered) -> None:
        """What was delivered once stays delivered, whatever becomes of later tries."""
        if call.delivered != "yes":
            call.delivered = delivered

    # -- grace -----------------------------------------------------------------------------------------
    def _wait(self, call: Call) -> None:
        """Wait for a registration: on the event, up to the grace and never beyond the deadline."""
        now = time.monotonic()
        if call.waited_since is None:
            call.waited_since = now
        until = call.waited_since + self._settings.rpc_reconnect_grace_ms / 1000
        if call.deadline is not None:
            until = min(until, call.deadline)
        if call.watcher is None:
            call.watcher = lambda: self._dispatch(call)
            self._registry.watch(call.room, call.watcher)
            call.waits_until = until
            for sid in dict.fromkeys(sid for sid, _ in call.callers):
                self._tell_waiting(call, sid)
            if self._foreign is not None:
                self._foreign.search(call.room, lambda: self._registry.is_watched(call.room))
        self._arm(call, until, self._grace_over)

    def _tell_waiting(self, call: Call, sid: str) -> None:
        until_ms = round((time.time() + max(0.0, call.waits_until - time.monotonic())) * 1000)
        told = {"requestId": call.request.request_id, "method": call.request.method, "untilMs": until_ms}
        self.notify(sid, "rpc-waiting", told)

    def _stop_waiting(self, call: Call) -> None:
        if call.watcher is not None:
            self._registry.unwatch(call.room, call.watcher)
            call.watcher = None
        if call.waited_since is not None:
            self.on_waited(time.monotonic() - call.waited_since)
            call.waited_since = None

    def _grace_over(self, call: Call) -> None:
        if call.reached:
            self._fail(call, "target_disconnected")
        else:
            self._fail(call, "not_available")

    # -- ends ------------------------------------------------------------------------------------------
    def _timed_out(self, call: Call) -> None:
        self._abandon(call)
        self._fail(call, "timeout")

    def _abandon(self, call: Call) -> None:
        """Tell the target, if there is one, that nobody waits any more."""
        if call.entry is None:
            return
        carrier = self._carrier(call.entry)
        if carrier is not None:
            self._learn(call, carrier.delivered(call.leg))
            carrier.cancel(call.leg)

    def _succeed(self, call: Call, result: Any) -> None:
        self._finish(call, "success", {"ok": True, "result": result})

    def _fail(self, call: Call, code: str, text: str | None = None) -> None:
        error = RpcError(
            code, error=text, delivered=call.delivered if code not in ("not_available", "self_call") else None
        )
        self._finish(call, code, error.as_ack())

    def _finish(self, call: Call, result: str, ack: dict[str, Any]) -> None:
        del self._calls[call.id]
        self._by_request.pop((call.account, call.request.request_id), None)
        if call.timer is not None:
            call.timer.cancel()
        self._stop_waiting(call)
        for sid, answer in call.callers:
            mine = self._by_caller.get(sid)
            if mine is not None:
                mine.discard(call)
                if not mine:
                    del self._by_caller[sid]
            answer(ack)
        self.on_ended(call, result)

    def _refuse(self, error: RpcError, sid: str, account: str, method: str, answer: Answer) -> None:
        if not self._by_caller.get(sid, True):
            del self._by_caller[sid]
        answer(error.as_ack())
        request = Request(method, None, None, "", "fail")
        self.on_ended(Call("", account, request, [], "", None), error.code)

    def _arm(self, call: Call, at: float, then: Callable[[Call], None]) -> None:
        if call.timer is not None:
            call.timer.cancel()
        delay = max(0.0, at - time.monotonic())
        call.timer = asyncio.get_running_loop().call_later(delay, then, call)
