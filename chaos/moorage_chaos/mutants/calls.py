"""Calls that end wrongly, late, twice or never."""

from __future__ import annotations

import asyncio
from typing import Any

from moorage_chaos.mutants.registry import Every, mutant, replace

LATE_S = 0.5
"""Later than any bar of an end that has evidence."""


@mutant("hang-call", "one call in five is never answered")
def hang_call() -> None:
    from moorage.rpc.calls import Calls

    finish, now = Calls._finish, Every(5)

    def _finish(self: Any, call: Any, result: str, ack: dict[str, Any]) -> None:
        if now():
            call.callers = [(sid, lambda ack: None) for sid, _ in call.callers]
        finish(self, call, result, ack)

    replace(Calls, "_finish", _finish)


@mutant("end-falsely", "one call in five to another replica is ended as target_disconnected after 30 ms")
def end_falsely() -> None:
    from moorage.rpc.remote import Remote

    send, now = Remote.send, Every(5)

    def _send(self: Any, call_id: str, entry: Any, *rest: Any) -> None:
        send(self, call_id, entry, *rest)
        if now():
            on_end = rest[-1]

            def end() -> None:
                if self._sent.pop(call_id, None) is not None:
                    on_end("gone", "unknown")

            asyncio.get_running_loop().call_later(0.03, end)

    replace(Remote, "send", _send)


@mutant("delivered-lie", "target_disconnected always says that nothing was delivered")
def delivered_lie() -> None:
    from moorage.rpc.calls import Calls

    fail = Calls._fail

    def _fail(self: Any, call: Any, code: str, text: str | None = None) -> None:
        if code == "target_disconnected":
            call.delivered = "no"
        fail(self, call, code, text)

    replace(Calls, "_fail", _fail)


@mutant("answer-other-account", "one room per method for all accounts")
def answer_other_account() -> None:
    from moorage.rpc import calls, registry
    from moorage.sockets import calling

    def rpc_room(account: str, method: str) -> str:
        return f"{registry.ROOM_PREFIX}everybody:{method}"

    for module in (calls, calling, registry):
        replace(module, "rpc_room", rpc_room)


@mutant("no-fast-fail", "evidence that a target is gone is acted on half a second late")
def no_fast_fail() -> None:
    from moorage.rpc.calls import Calls

    ended = Calls._ended

    def _ended(self: Any, call: Any, attempt: int, kind: Any, value: Any) -> None:
        if kind == "gone":
            asyncio.get_running_loop().call_later(LATE_S, ended, self, call, attempt, kind, value)
        else:
            ended(self, call, attempt, kind, value)

    replace(Calls, "_ended", _ended)


@mutant("slow-forward", "a request to another replica is held back for 5 ms")
def slow_forward() -> None:
    from moorage.rpc.remote import Remote

    send = Remote.send

    def _send(self: Any, *rest: Any) -> None:
        asyncio.get_running_loop().call_later(0.005, send, self, *rest)

    replace(Remote, "send", _send)


@mutant("no-grace", "a call whose target is away ends at once")
def no_grace() -> None:
    from moorage.rpc.calls import Calls

    def _wait(self: Any, call: Any) -> None:
        self._grace_over(call)

    replace(Calls, "_wait", _wait)


@mutant("slow-grace", "a waiting call looks for its target each 200 ms instead of being told")
def slow_grace() -> None:
    from moorage.rpc.registry import Registry

    watch = Registry.watch

    def later(callback: Any) -> None:
        asyncio.get_running_loop().call_later(0.2, callback)

    def _watch(self: Any, room: str, callback: Any) -> None:
        watch(self, room, lambda: later(callback))

    replace(Registry, "watch", _watch)
    replace(Registry, "unwatch", lambda self, room, callback: self._watchers.pop(room, None))


@mutant("ignore-cancel", "a target is never told that its call was cancelled")
def ignore_cancel() -> None:
    from moorage.rpc.serving import Serving

    def cancel(self: Any, call_id: str) -> None:
        self._take(call_id)

    replace(Serving, "cancel", cancel)


@mutant("late-run", "a call that expired while it waited is still sent when its target appears")
def late_run() -> None:
    from moorage.rpc.calls import Calls

    stop = Calls._stop_waiting

    def _stop_waiting(self: Any, call: Any) -> None:
        room, request = call.room, call.request
        waited = call.watcher is not None
        stop(self, call)
        if waited and call.id not in self._calls:

            def send() -> None:
                entry = self._registry.resolve(room)
                carrier = self._carrier(entry) if entry is not None else None
                if carrier is not None:
                    rest = (
                        request.method,
                        request.params,
                        request.request_id,
                        None,
                        lambda kind, value: None,
                    )
                    carrier.send(call.id + "late", entry, *rest)

            self._registry.watch(room, send)

    replace(Calls, "_stop_waiting", _stop_waiting)


@mutant("oldest-wins", "of several registrations of a method the oldest serves")
def oldest_wins() -> None:
    from moorage.rpc.registry import Registry

    def resolve(self: Any, room: str) -> Any:
        entries = self._rooms.get(room)
        return min(entries.values(), key=lambda entry: entry.age) if entries else None

    put = Registry._put

    def _put(self: Any, entry: Any) -> None:
        tell, self.on_superseded = self.on_superseded, lambda entry: None
        put(self, entry)
        self.on_superseded = tell

    replace(Registry, "resolve", resolve)
    replace(Registry, "_put", _put)


@mutant("local-waits-for-redis", "a call to a socket of the same replica waits for a PING of Redis first")
def local_waits_for_redis() -> None:
    from moorage.app import Replica
    from moorage.rpc.here import Here

    init, send = Replica.__init__, Here.send
    backplanes: list[Any] = []

    def __init__(self: Any, settings: Any) -> None:
        init(self, settings)
        backplanes.append(self.backplane)

    def _send(self: Any, *rest: Any) -> None:
        future = backplanes[-1].command("PING")
        future.add_done_callback(lambda done: done.cancelled() or done.exception() or send(self, *rest))

    replace(Replica, "__init__", __init__)
    replace(Here, "send", _send)
