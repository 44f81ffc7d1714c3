"""Requests on local sockets: ends, and what can be proven about delivery."""

from __future__ import annotations

from typing import Any

from moorage.rpc.serving import LATE_MAX, Serving


class Wire:
    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.acks: dict[int, Any] = {}
        self.forgotten: list[int] = []
        self.there = True
        self.serving = Serving(self.send, lambda sid, ack: self.forgotten.append(ack))
        self.ends: list[tuple[str, str, Any]] = []

    def send(self, sid: str, event: str, payload: Any, on_ack: Any = None) -> int:
        if not self.there:
            return 0
        self.sent.append((sid, event, payload))
        self.acks[len(self.sent)] = on_ack
        return len(self.sent)

    def run(self, call_id: str, sid: str = "d") -> None:
        self.serving.run(
            call_id, sid, "m", 1, f"r-{call_id}", lambda kind, value: self.ends.append((call_id, kind, value))
        )


def test_answer_ends_once() -> None:
    wire = Wire()
    wire.run("1")
    wire.acks[1](["result", "ignored"])
    wire.acks[1](["again"])
    wire.serving.closed("d")
    assert wire.ends == [("1", "answer", "result")]
    assert wire.sent[0] == ("d", "rpc-request", {"method": "m", "params": 1, "requestId": "r-1"})


def test_empty_ack_is_a_null_result() -> None:
    wire = Wire()
    wire.run("1")
    wire.acks[1]([])
    assert wire.ends == [("1", "answer", None)]


def test_socket_that_is_not_here() -> None:
    wire = Wire()
    wire.there = False
    wire.run("1")
    assert wire.ends == [("1", "absent", None)]
    assert "1" not in wire.serving


def test_delivery_is_proven_by_a_later_ack_on_the_same_socket_only() -> None:
    wire = Wire()
    for call_id, sid in (("1", "d"), ("2", "other"), ("3", "d"), ("4", "d")):
        wire.run(call_id, sid)
    wire.acks[3]([None])
    wire.serving.closed("d")
    wire.serving.closed("other")
    assert wire.ends[1:] == [("1", "gone", "yes"), ("4", "gone", "unknown"), ("2", "gone", "unknown")]


def test_delivery_is_proven_by_the_second_pong_after_the_request() -> None:
    wire = Wire()
    wire.serving.heard("d")
    wire.run("1")
    wire.serving.heard("d")  # its ping may have left before the request
    assert wire.serving.delivered("1") == "unknown"
    wire.serving.heard("d")
    assert wire.serving.delivered("1") == "yes"


def test_cancel_tells_the_socket_and_a_late_answer_is_counted_and_dropped() -> None:
    wire = Wire()
    late: list[bool] = []
    wire.serving.on_late = lambda: late.append(True)
    wire.run("1")
    wire.serving.cancel("1")
    assert wire.sent[-1] == ("d", "rpc-cancel", {"requestId": "r-1"})
    wire.acks[1]([1])
    assert late == [True]
    wire.serving.closed("d")
    assert wire.ends == []


def test_a_socket_that_never_answers_is_not_remembered_for_ever() -> None:
    wire = Wire()
    for number in range(LATE_MAX + 3):
        wire.run(str(number))
        wire.serving.cancel(str(number))
    assert wire.forgotten == [1, 3, 5]
    wire.serving.closed("d")
    wire.serving.heard("d")  # a pong that was on its way
    assert not (wire.serving._cancelled or wire.serving._lines or wire.serving._runs)


def test_answers_in_reverse_order_cost_no_more_than_in_order() -> None:
    """Each answer proves delivery of all written before it, and touches none of them."""
    wire = Wire()
    touched = 0

    class Counting(dict[str, Any]):
        def __iter__(self) -> Any:
            nonlocal touched
            touched += len(self)
            return super().__iter__()

        def items(self) -> Any:
            nonlocal touched
            touched += len(self)
            return super().items()

    wire.run("0")
    line = wire.serving._lines["d"]
    line.runs = Counting(line.runs)
    for number in range(1, 100):
        wire.run(str(number))
    for number in reversed(range(50, 100)):
        wire.acks[number + 1]([None])
    assert touched == 0
    assert wire.serving.delivered("3") == "yes"
