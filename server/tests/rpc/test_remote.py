"""Both sides of a call between replicas, without Redis: what is sent, kept, asked and forgotten."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import ormsgpack
import pytest

from moorage.cluster.inboxes import Member
from moorage.errors import BackplaneUnavailable, BackplaneUnknown
from moorage.rpc import hosted
from moorage.rpc.registry import Entry
from moorage.rpc.remote import Remote
from moorage.rpc.serving import Serving

from .replicas import until


class Wire:
    """The membership and the sockets of one replica; ``peer`` is the other one."""

    def __init__(self, orphan_s: float = 0.0) -> None:
        self.available, self.generation = True, 1
        self.backplane = self
        self.members: dict[str, Member] = {}
        self.meet("peer", "boot1")
        self.sent: list[list[Any]] = []
        self.replies: list[asyncio.Future[int]] = []
        self.receivers: int | None = 1
        self.events: list[tuple[str, Any]] = []
        self.acks: list[Any] = []
        self.serving = Serving(self._send_event, lambda sid, ack: None)
        self.remote = Remote(self, self.serving, orphan_s)  # type: ignore[arg-type]
        self.ends: list[tuple[str, str, Any]] = []

    def meet(self, name: str, boot: str) -> None:
        self.members[name] = Member(name, boot, time.monotonic())

    def lose(self, name: str = "peer") -> None:
        self.remote.gone(self.members.pop(name), "no_receiver")

    # what Remote needs of Membership
    def send(self, replica: str, message: bytes) -> asyncio.Future[int]:
        if replica not in self.members or not self.available:
            raise BackplaneUnavailable("away")
        self.sent.append(ormsgpack.unpackb(message))
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.receivers is not None:
            future.set_result(self.receivers)
        self.replies.append(future)
        return future

    def seen(self, member: Member) -> None:
        pass

    async def look(self, replicas: list[str]) -> None:
        pass

    def _send_event(self, sid: str, event: str, payload: Any, on_ack: Any = None) -> int:
        self.events.append((event, payload))
        self.acks.append(on_ack)
        return len(self.events)

    # the two sides
    def call(self, call_id: str, params: Any = None) -> None:
        entry = Entry("rpc:acc:m", "d", "peer", 1, False)
        self.remote.send(
            call_id, entry, "m", params, call_id, time.monotonic() + 30,
            lambda kind, value: self.ends.append((call_id, kind, value)),
        )  # fmt: skip

    def request(self, call_id: str, deadline: float | None = None) -> None:
        self.receive("q", call_id, "d", "m", None, call_id, deadline)

    def receive(self, *message: Any) -> None:
        self.remote.received("peer", ormsgpack.packb(message))

    def of(self, kind: str) -> list[list[Any]]:
        return [message for message in self.sent if message[0] == kind]


async def test_a_request_that_ended_is_not_run_again_even_when_its_answer_is_not_kept() -> None:
    wire = Wire()
    for number in range(12):
        wire.request(str(number))
        wire.acks[-1](["x" * (4 << 20)])
    wire.sent.clear()
    wire.receive("s", ["0", "11", "never"], 0.1)
    await until(lambda: len(wire.sent) == 2)
    assert [message[:2] for message in wire.sent] == [["a", "11"], ["u", ["never"]]]
    wire.request("0")
    assert len(wire.events) == 12


async def test_orphans_of_an_earlier_generation_are_cancelled_and_those_of_the_new_one_stay() -> None:
    wire = Wire()
    wire.request("old")
    wire.request("adopted")
    wire.lose()
    wire.meet("peer", "boot2")
    wire.receive("s", ["adopted"], 1.0)
    wire.request("new")
    await until(lambda: len(wire.remote.hosted) == 2)
    assert [p for e, p in wire.events if e == "rpc-cancel"] == [{"requestId": "old"}]


async def test_a_run_whose_cancel_never_came_ends_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "SWEEP_S", 0.01)
    wire = Wire()
    wire.members["peer"].compare_clocks(1000.0, 400.0)  # its clock is 600 s behind ours
    wire.request("short", time.monotonic() - 600 + 0.05)
    wire.request("long", time.monotonic() - 600 + 60)
    wire.request("late", time.monotonic() - 600 - 1)
    await until(lambda: len(wire.remote.hosted) == 1)
    requested = [p["requestId"] for e, p in wire.events if e == "rpc-request"]
    assert requested == ["short", "long"]
    assert [p for e, p in wire.events if e == "rpc-cancel"] == [{"requestId": "short"}]


async def test_a_cancel_that_was_lost_is_sent_again() -> None:
    wire = Wire()
    wire.call("1")
    wire.receivers = None
    wire.remote.cancel("1")
    wire.receivers = 1
    wire.replies[-1].set_exception(BackplaneUnknown("link lost"))
    await until(lambda: len(wire.of("c")) == 2)
    await asyncio.sleep(0)
    assert not wire.remote._cancels and not wire.remote._boxes


async def test_an_unknown_that_overtakes_its_questions_reply_is_not_lost() -> None:
    wire = Wire()
    wire.call("1")
    await asyncio.sleep(0)
    wire.receivers = None
    wire.remote.relinked("peer")
    await until(lambda: len(wire.of("s")) == 1)
    wire.receivers = 1
    wire.receive("u", ["1"])  # before the reply to the PUBLISH of the question
    await until(lambda: len(wire.of("q")) == 2)


async def test_after_a_renewed_link_each_call_is_asked_about_once() -> None:
    wire = Wire()
    for number in range(5):
        wire.call(str(number))
    await asyncio.sleep(0)
    wire.generation = 2
    await until(lambda: len(wire.of("s")) == 1)
    assert sorted(wire.of("s")[0][1]) == ["0", "1", "2", "3", "4"]
    wire.call("later")
    await asyncio.sleep(0.1)
    assert len(wire.of("s")) == 1


async def test_a_tick_touches_no_call_while_nothing_happened() -> None:
    wire = Wire()
    for number in range(3):
        wire.call(str(number))
    await asyncio.sleep(0)

    class Untouchable(dict[str, Any]):
        def __iter__(self) -> Any:
            raise AssertionError

        values = items = __iter__

    box = wire.remote._boxes["peer"]
    wire.remote._generation = wire.generation
    box.sent, wire.remote._sent = Untouchable(box.sent), Untouchable(wire.remote._sent)
    wire.remote._tick()
    await asyncio.sleep(0.05)


async def test_nothing_is_left_when_all_calls_ended() -> None:
    wire = Wire()
    for number in range(4):
        wire.call(str(number))
    wire.receive("a", "0", 1)
    wire.receive("g", "1", "yes")
    wire.remote.cancel("2")
    await asyncio.sleep(0)
    wire.lose()
    assert wire.ends == [("0", "answer", 1), ("1", "gone", "yes"), ("3", "gone", "unknown")]
    assert not (wire.remote._boxes or wire.remote._sent or wire.remote._cancels)


async def test_an_answer_that_reached_nobody_is_sent_again_while_its_caller_lives() -> None:
    wire = Wire()
    wire.request("1")
    wire.receivers = 0
    wire.acks[0](["result"])
    await until(lambda: len(wire.of("a")) >= 2)
    wire.receivers = 1
    count = len(wire.of("a"))
    await until(lambda: len(wire.of("a")) > count)
    await until(lambda: not wire.remote.hosted._unsent)
    wire.receivers = 0
    wire.request("2")
    wire.acks[1](["result"])
    wire.lose()
    await until(lambda: not wire.remote.hosted._unsent and wire.remote.hosted._retry is None)
