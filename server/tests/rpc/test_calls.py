"""The life of a call, without sockets and without Redis: each end once, in the order that PROTOCOL gives."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.errors import BackplaneUnavailable, Delivered
from moorage.rpc.calls import Calls
from moorage.rpc.registry import Entry, Registry, rpc_room
from moorage.rpc.serving import OnEnd
from moorage.settings import load


@dataclass
class Sent:
    call_id: str
    entry: Entry
    request_id: str
    deadline: float | None
    on_end: OnEnd


class FakeCarrier:
    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.cancelled: list[str] = []
        self.refuse: Exception | None = None

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
        if self.refuse is not None:
            raise self.refuse
        self.sent.append(Sent(call_id, entry, request_id, deadline, on_end))

    def cancel(self, call_id: str) -> None:
        self.cancelled.append(call_id)

    def delivered(self, call_id: str) -> Delivered:
        return "unknown"


class Bench:
    def __init__(self, **overrides: Any) -> None:
        values = {"rpc_reconnect_grace_ms": 60, "rpc_call_timeout_ms": 5000, **overrides}
        self.settings = load(replica_id="a", **values)
        self.registry = Registry("a")
        self.here, self.elsewhere = FakeCarrier(), FakeCarrier()
        self.calls = Calls(self.settings, self.registry, self.here, self.elsewhere)
        self.ended: list[str] = []
        self.notices: list[tuple[str, str]] = []
        self.late = 0
        self.calls.on_ended = lambda call, result: self.ended.append(result)
        self.calls.notify = lambda sid, event, payload: self.notices.append((sid, event))

        def late() -> None:
            self.late += 1

        self.calls.on_late = late

    def serve(
        self, sid: str = "d", replica: str = "b", resumable: bool = False, stamp: int | None = None
    ) -> None:
        self.stamp = (stamp or getattr(self, "stamp", 0)) + 1
        self.registry.apply(replica, [["+", rpc_room("acc", "m"), sid, self.stamp, resumable]])

    def call(self, sid: str = "caller", account: str = "acc", **payload: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.start(sid, account, {"method": "m", **payload}, future.set_result)
        return future


async def end(future: asyncio.Future[Any]) -> Any:
    return await asyncio.wait_for(future, 5)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "an object is required"),
        ([], "an object is required"),
        ({}, "method is required"),
        ({"method": ""}, "method is required"),
        ({"method": 5}, "method is required"),
        ({"method": "x" * 257}, "longer than 256"),
        ({"method": "\ud800"}, "no valid text"),
        ({"method": "m", "requestId": "\ud800"}, "requestId"),
        ({"method": "m", "timeoutMs": 0}, "timeoutMs"),
        ({"method": "m", "timeoutMs": -1}, "timeoutMs"),
        ({"method": "m", "timeoutMs": True}, "timeoutMs"),
        ({"method": "m", "timeoutMs": "5"}, "timeoutMs"),
        ({"method": "m", "timeoutMs": float("nan")}, "timeoutMs"),
        ({"method": "m", "requestId": 5}, "requestId"),
        ({"method": "m", "requestId": ""}, "requestId"),
        ({"method": "m", "requestId": "x" * 257}, "requestId"),
        ({"method": "m", "onTargetLost": "retry"}, "onTargetLost"),
    ],
)
async def test_bad_payload_is_invalid_params(payload: Any, text: str) -> None:
    bench = Bench()
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bench.calls.start("caller", "acc", payload, future.set_result)
    ack = future.result()
    assert (ack["ok"], ack["code"], ack["delivered"]) == (False, "invalid_params", "no")
    assert text in ack["error"]
    assert bench.ended == ["invalid_params"]
    assert not bench.calls._by_caller


async def test_answer() -> None:
    bench = Bench()
    bench.serve()
    future = bench.call()
    bench.elsewhere.sent[0].on_end("answer", {"x": 1})
    assert future.result() == {"ok": True, "result": {"x": 1}}
    assert bench.ended == ["success"]
    bench.elsewhere.sent[0].on_end("answer", 2)
    assert bench.late == 1


async def test_nobody_there_is_not_available_after_the_grace_and_the_caller_is_told() -> None:
    bench = Bench()
    ack = await end(bench.call())
    assert ack == {
        "ok": False,
        "error": "RPC method not available",
        "code": "not_available",
        "delivered": "no",
    }
    assert bench.notices == [("caller", "rpc-waiting")]
    assert not bench.registry._watchers


async def test_deadline_in_the_grace_is_not_available() -> None:
    bench = Bench(rpc_reconnect_grace_ms=60_000)
    assert (await end(bench.call(timeoutMs=30)))["code"] == "not_available"


async def test_deadline_while_running_is_timeout_and_the_target_is_told() -> None:
    bench = Bench()
    bench.serve()
    ack = await end(bench.call(timeoutMs=30))
    assert (ack["code"], ack["error"], ack["delivered"]) == ("timeout", "operation has timed out", "unknown")
    assert bench.elsewhere.cancelled == [bench.elsewhere.sent[0].call_id]


async def test_timeout_is_clamped() -> None:
    bench = Bench(rpc_call_timeout_ms=20, rpc_call_timeout_max_ms=30)
    bench.serve()
    assert (await end(bench.call(timeoutMs=10**12)))["code"] == "timeout"


async def test_default_deadline_runs_from_the_request() -> None:
    bench = Bench(rpc_call_timeout_ms=40, rpc_reconnect_grace_ms=60_000)
    future = bench.call()
    await asyncio.sleep(0.06)  # longer than the deadline would be if it ran from the arrival
    assert not future.done()
    bench.serve()
    assert (await end(future))["code"] == "timeout"


async def test_self_call() -> None:
    bench = Bench()
    bench.serve(sid="caller", replica="a")
    assert bench.call().result()["code"] == "self_call"


async def test_gone_target_ends_the_call_with_what_is_known() -> None:
    bench = Bench()
    bench.serve()
    future = bench.call()
    bench.elsewhere.sent[0].on_end("gone", "yes")
    assert future.result() == {
        "ok": False, "error": "RPC target disconnected", "code": "target_disconnected", "delivered": "yes",
    }  # fmt: skip


async def test_absent_target_is_not_asked_again_but_the_next_one_is() -> None:
    bench = Bench()
    bench.serve("d1")
    future = bench.call()
    bench.elsewhere.sent[0].on_end("absent", None)
    assert len(bench.elsewhere.sent) == 1
    bench.serve("d2")
    bench.elsewhere.sent[1].on_end("answer", 1)
    assert future.result()["ok"]


async def test_resumable_target_and_waiting_caller_send_the_same_request_again() -> None:
    bench = Bench()
    bench.serve("d1", resumable=True)
    future = bench.call(requestId="r", onTargetLost="wait")
    bench.elsewhere.sent[0].on_end("gone", "unknown")
    assert not future.done()
    bench.serve("d2", resumable=True)
    assert [s.request_id for s in bench.elsewhere.sent] == ["r", "r"]
    bench.elsewhere.sent[0].on_end("answer", "late, of the first attempt")
    assert not future.done()
    bench.elsewhere.sent[1].on_end("answer", 1)
    assert future.result()["ok"]


async def test_resumable_target_that_does_not_return_is_disconnected() -> None:
    bench = Bench()
    bench.serve("d1", resumable=True)
    future = bench.call(requestId="r", onTargetLost="wait")
    bench.elsewhere.sent[0].on_end("gone", "unknown")
    assert (await end(future))["code"] == "target_disconnected"


async def test_others_get_a_request_once_ever() -> None:
    bench = Bench()
    bench.serve("d1", resumable=False)
    future = bench.call(onTargetLost="wait")
    bench.elsewhere.sent[0].on_end("gone", "unknown")
    assert future.result()["code"] == "target_disconnected"
    bench.serve("d2")
    assert len(bench.elsewhere.sent) == 1


async def test_what_may_have_run_is_never_sent_to_a_target_that_promised_nothing() -> None:
    bench = Bench()
    bench.serve("d1", resumable=True)
    future = bench.call(requestId="r", onTargetLost="wait")
    bench.elsewhere.sent[0].on_end("gone", "unknown")
    bench.serve("d2", resumable=False)
    assert len(bench.elsewhere.sent) == 1
    bench.serve("d3", resumable=True)
    bench.elsewhere.sent[1].on_end("answer", 1)
    assert future.result()["ok"]


@pytest.mark.parametrize("known", ["yes", "unknown"])
async def test_what_is_known_of_the_first_try_outlasts_later_ones(known: Any) -> None:
    for how in ("absent", "self", "refused", "cancelled"):
        bench = Bench()
        bench.serve("d1", resumable=True)
        future = bench.call(requestId="r", onTargetLost="wait")
        bench.elsewhere.sent[0].on_end("gone", known)
        if how == "refused":
            bench.elsewhere.refuse = TypeError("too large")
        bench.serve("caller" if how == "self" else "d2", resumable=True)
        if how == "absent":
            bench.elsewhere.sent[1].on_end("absent", None)
        elif how == "cancelled":
            bench.calls.cancel("acc", "r")
        ack = await end(future)
        assert ack["code"] == ("cancelled" if how == "cancelled" else "target_disconnected"), how
        assert ack["delivered"] == known, how


async def test_absent_twice_is_still_not_delivered() -> None:
    bench = Bench()
    bench.serve("d1", resumable=True)
    future = bench.call(requestId="r", onTargetLost="wait")
    bench.elsewhere.sent[0].on_end("absent", None)
    bench.serve("d2", resumable=True)
    bench.elsewhere.sent[1].on_end("absent", None)
    ack = await end(future)
    assert (ack["code"], ack["delivered"]) == ("not_available", "no")


async def test_joining_a_call_is_bounded_and_tells_of_the_wait() -> None:
    bench = Bench(rpc_max_in_flight_per_socket=3)
    joined = [bench.call("c1", requestId="r") for _ in range(3)]
    assert bench.notices == [("c1", "rpc-waiting")] * 3
    assert bench.call("c1", requestId="r").result()["code"] == "overloaded"
    bench.serve()
    bench.elsewhere.sent[0].on_end("answer", 1)
    assert all(future.result()["ok"] for future in joined)
    assert not bench.calls._by_caller


async def test_repeated_request_id_joins_the_running_call() -> None:
    bench = Bench()
    bench.serve()
    first, second = bench.call("c1", requestId="r"), bench.call("c2", requestId="r")
    assert len(bench.elsewhere.sent) == 1
    bench.elsewhere.sent[0].on_end("answer", 1)
    assert first.result() == second.result()
    assert bench.ended == ["success"]


async def test_request_ids_belong_to_an_account() -> None:
    bench = Bench()
    bench.serve()
    mine = bench.call(requestId="r")
    foreign = bench.call("other", account="evil", requestId="r")
    assert not bench.calls.cancel("third", "r")
    assert bench.calls.cancel("evil", "r")
    assert foreign.result()["code"] == "cancelled"
    assert not mine.done()


async def test_overloaded() -> None:
    bench = Bench(rpc_max_in_flight_per_socket=2)
    bench.serve()
    running = [bench.call(), bench.call()]
    assert bench.call().result()["code"] == "overloaded"
    assert not bench.call("another").done()
    bench.elsewhere.sent[0].on_end("answer", 1)
    assert not bench.call().done()
    assert running[0].result()["ok"]


async def test_caller_that_leaves_cancels_unless_another_waits() -> None:
    bench = Bench()
    bench.serve()
    lonely, shared, other = bench.call("c1"), bench.call("c1", requestId="r"), bench.call("c2", requestId="r")
    bench.calls.caller_gone("c1")
    assert bench.elsewhere.cancelled == [bench.elsewhere.sent[0].call_id]
    bench.elsewhere.sent[1].on_end("answer", 1)
    assert other.result()["ok"]
    assert not lonely.done() and not shared.done()


async def test_what_redis_does_not_take_ends_at_once() -> None:
    bench = Bench()
    bench.serve()
    bench.elsewhere.refuse = BackplaneUnavailable()
    ack = bench.call().result()
    assert (ack["code"], ack["delivered"]) == ("backplane_unavailable", "no")


async def test_params_that_cannot_be_carried_are_invalid() -> None:
    bench = Bench()
    bench.serve()
    bench.elsewhere.refuse = TypeError("Integer exceeds 64-bit range")
    assert bench.call().result()["code"] == "invalid_params"


STEPS = st.lists(
    st.sampled_from(
        [
            "call",
            "call-wait",
            "serve",
            "serve-resumable",
            "answer",
            "gone",
            "absent",
            "cancel",
            "leave",
            "refuse",
            "end",
        ]
    ),
    max_size=25,
)


@settings(max_examples=200)
@given(STEPS)
def test_every_call_ends_exactly_once_whatever_happens(steps: list[str]) -> None:
    async def run() -> None:
        bench = Bench(rpc_reconnect_grace_ms=1, rpc_call_timeout_ms=1)
        answers: list[list[Any]] = []
        left = 0
        nobody: set[int] = set()
        for number, step in enumerate(steps):
            sent = bench.elsewhere.sent
            bench.elsewhere.refuse = BackplaneUnavailable() if step == "refuse" else None
            if step.startswith("call") or step == "refuse":
                got: list[Any] = []
                answers.append(got)
                payload = {
                    "method": "m",
                    "requestId": str(number),
                    "onTargetLost": "wait" if step == "call-wait" else "fail",
                }
                bench.calls.start(f"c{number}", "acc", payload, got.append)
            elif step.startswith("serve"):
                bench.serve(f"d{number}", resumable=step.endswith("resumable"))
            elif step in ("answer", "gone", "absent") and sent:
                nobody |= {id(sent[-1])} if step == "absent" else set()
                sent[-1].on_end(step, {"answer": 1, "gone": "unknown", "absent": None}[step])  # type: ignore[arg-type]
            elif step == "cancel" and bench.calls._calls:
                bench.calls.cancel("acc", next(iter(bench.calls._calls.values())).request.request_id)
            elif step == "leave" and bench.calls._calls:
                bench.calls.caller_gone(next(iter(bench.calls._calls.values())).callers[0][0])
                left += 1
            elif step == "end":
                bench.calls.end_all("cancelled")
            once = [s.request_id for s in sent if not s.entry.resumable and id(s) not in nobody]
            assert len(once) == len(set(once))
        async with asyncio.timeout(5):
            while len(bench.calls):
                await asyncio.sleep(0.001)
        assert all(len(got) <= 1 for got in answers)
        assert sum(len(got) for got in answers) == len(answers) - left
        assert len(bench.ended) == len(answers)
        assert not bench.registry._watchers
        assert not bench.calls._by_caller
        assert not bench.calls._by_request

    asyncio.run(run())
