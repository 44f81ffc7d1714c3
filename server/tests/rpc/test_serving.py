"""Requests on local sockets: ends, and what can be proven about delivery."""

from __future__ import annotations

from typing import Any

from moorage.rpc.serving import Serving


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


def test_cancel_tells_the_socket_and_ends_silently() -> None:
    wire = Wire()
    wire.run("1")
    wire.serving.cancel("1")
    assert wire.sent[-1] == ("d", "rpc-cancel", {"requestId": "r-1"})
    assert wire.forgotten == [1]
    wire.acks[1]([1])
    wire.serving.closed("d")
    assert wire.ends == []
