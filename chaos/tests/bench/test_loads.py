"""The load client: what it sends, what it counts, what it refuses to count. No server, no time."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from moorage_chaos.bench import loads
from moorage_chaos.bench.client import BenchError, HttpConnection, SocketClient, http_request
from moorage_chaos.bench.loads import Calls, Fan, Pair, run_calls
from moorage_chaos.bench.rig import call_figures, percentile


class Wire(SocketClient):
    """Keeps what is sent instead of sending it."""

    def __init__(self) -> None:
        super().__init__({})
        self.sent: list[bytes] = []

    def send(self, packet: bytes) -> None:
        self.sent.append(packet)


class Echo(Wire):
    """A caller whose server answers every call in the next tick, in its own words."""

    def __init__(self, answer: str = '[{"ok":true,"result":{"n":%d}}]') -> None:
        super().__init__()
        self.answer = answer

    def send(self, packet: bytes) -> None:
        super().send(packet)
        number = int(packet[2 : packet.index(b"[")])
        text = self.answer % number if "%d" in self.answer else self.answer
        asyncio.get_running_loop().call_soon(lambda: self.on_ack(b"43%d" % number + text.encode()))


async def test_a_daemon_answers_a_request_with_its_number() -> None:
    daemon = Wire()
    pair = Pair(Wire(), daemon, "m")
    daemon.on_event(b'4217["rpc-request",{"method":"m","params":{"n":5,"data":"x"},"requestId":"r"}]')
    assert daemon.sent == [b'4317[{"n":5}]']
    assert pair.failure == ""


async def test_registration_is_done_when_the_server_says_so() -> None:
    daemon = Wire()
    pair = Pair(Wire(), daemon, "m")
    pair.register()
    assert daemon.sent == [b'42["rpc-register",{"method":"m"}]']
    daemon.on_event(b'42["rpc-registered",{"method":"m","scope":"local"}]')
    assert not pair.registered.done()
    for _ in range(2):
        daemon.on_event(b'42["rpc-registered",{"method":"m","scope":"cluster"}]')
    assert pair.registered.done()


async def test_node_registers_without_a_scope() -> None:
    daemon = Wire()
    pair = Pair(Wire(), daemon, "m")
    daemon.on_event(b'42["rpc-registered",{"method":"m"}]')
    assert pair.registered.done()


async def test_each_call_has_its_own_ack_and_number() -> None:
    caller = Wire()
    pair = Pair(caller, Wire(), "m")
    for _ in range(2):
        pair.call(lambda started, now: None)
    assert [packet[:3] for packet in caller.sent] == [b"421", b"422"]
    event, payload = orjson.loads(caller.sent[1][3:])
    assert (event, payload["method"], payload["params"]["n"]) == ("rpc-call", "m", 2)
    assert pair.in_flight == 2


async def test_the_call_that_ends_too_late_is_not_timed() -> None:
    caller = Echo()
    calls = await run_calls([Pair(caller, Wire(), "m")], 1, 0.01)
    assert calls.ended == len(caller.sent)
    assert len(calls.latencies) == calls.ended - 1


async def test_a_call_without_answer_fails_the_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "SETTLE_S", 0.02)
    with pytest.raises(BenchError, match="2 calls of m have no answer"):
        await run_calls([Pair(Wire(), Wire(), "m")], 2, 0.0)


@pytest.mark.parametrize(
    "answer",
    [
        '[{"ok":false,"error":"RPC method not available","code":"not_available"}]',
        '[{"ok":true,"result":{"n":-1}}]',
    ],
)
async def test_a_failed_or_foreign_answer_fails_the_phase(answer: str) -> None:
    caller = Echo(answer)
    with pytest.raises(BenchError, match="call 1 of m"):
        await run_calls([Pair(caller, Wire(), "m")], 1, 0.01)
    assert len(caller.sent) == 1


async def test_a_second_answer_fails_the_phase() -> None:
    pair = Pair(Wire(), Wire(), "m")
    pair.call(lambda started, now: None)
    for _ in range(2):
        pair.caller.on_ack(b'431[{"ok":true,"result":{"n":1}}]')
    assert "a second answer to call 1" in pair.failure


def test_figures_of_calls() -> None:
    made = call_figures(Calls(2.0, [number / 1000 for number in range(1, 101)]))
    assert made["rpc-rate-1"] == 50
    assert made["rpc-p50-sequential"] == pytest.approx(51.0)
    assert made["rpc-p99-sequential"] == pytest.approx(100.0)
    with pytest.raises(BenchError):
        call_figures(Calls(2.0))


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.5) == percentile([7.0], 0.99) == 7.0


class Link(HttpConnection):
    """Answers each post at once and delivers it to ``sockets``, each as often as ``times`` says."""

    def __init__(self, sockets: list[Wire], times: int = 1, status: int = 202) -> None:
        super().__init__()
        self._sockets, self._times, self._status = sockets, times, status
        self.bodies: list[Any] = []

    @property
    def standing(self) -> bool:
        return True

    @property
    def idle(self) -> bool:
        return len(self.bodies) < 5

    def request(self, data: bytes, done: Any) -> None:
        self.bodies.append(orjson.loads(data.partition(b"\r\n\r\n")[2]))
        for socket in self._sockets:
            for _ in range(self._times):
                socket.on_event(b"42" + orjson.dumps(["ephemeral", self.bodies[-1]["body"]]))
        done(self._status, b"{}")


async def test_a_fan_counts_every_delivery_once() -> None:
    sockets = [Wire(), Wire(), Wire()]
    fan = Fan(sockets, [Link(sockets)], "token")
    sockets[0].on_event(b'42["ephemeral",{"type":"activity","id":"other"}]')
    sockets[0].on_event(b'42["update",{"type":"bench"}]')
    assert await fan.pace(0.005, 1000) == 15
    assert fan.counts == [5, 5, 5]


@pytest.mark.parametrize("times", [0, 2])
async def test_a_lost_or_doubled_delivery_fails_the_phase(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "SETTLE_S", 0.02)
    sockets = [Wire(), Wire()]
    fan = Fan(sockets, [Link(sockets, times)], "token")
    fan.post()
    with pytest.raises(BenchError, match=f"between {times} and {times}"):
        await fan.settle()


async def test_a_refused_post_fails_the_phase() -> None:
    sockets = [Wire()]
    fan = Fan(sockets, [Link(sockets, status=503)], "token")
    with pytest.raises(BenchError, match="503"):
        await fan.flood(0.001, 2)


async def test_a_flood_keeps_to_its_window() -> None:
    sockets = [Wire()]
    link = Link([])
    fan = Fan(sockets, [link], "token")
    delivery = b'42["ephemeral",{"type":"bench"}]'
    flood = asyncio.ensure_future(fan.flood(0.01, 3))
    await asyncio.sleep(0)
    assert fan.sent == 3
    for _ in range(3):
        sockets[0].on_event(delivery)
    assert fan.sent == 5  # all that the link takes
    for _ in range(2):
        sockets[0].on_event(delivery)
    await flood


async def test_a_flood_without_a_connection_fails_instead_of_waiting() -> None:
    fan = Fan([Wire()], [HttpConnection()], "token")
    with pytest.raises(BenchError, match="no connection"):
        await fan.flood(0.01, 3)


def answered(*chunks: bytes) -> list[tuple[int, bytes]]:
    seen: list[tuple[int, bytes]] = []
    link = HttpConnection()
    link._done = lambda status, body: seen.append((status, body))
    for chunk in chunks:
        link.data_received(chunk)
    return seen


def test_http_answers_come_whole_in_any_pieces() -> None:
    whole = b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\nX: y\r\n\r\n{}"
    assert answered(whole) == [(202, b"{}")]
    for cut in range(1, len(whole)):
        assert answered(whole[:cut], whole[cut:]) == [(202, b"{}")]
    assert answered(whole[:-1]) == []


def test_a_lost_http_connection_answers_with_status_zero() -> None:
    seen: list[int] = []
    link = HttpConnection()
    link.request(http_request("GET", "/health"), lambda status, body: seen.append(status))
    assert seen == [0]
    assert not link.idle


def test_http_requests() -> None:
    assert http_request("GET", "/ready") == b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    post = http_request("POST", "/v1/emit", "t", b"{}")
    assert post.endswith(b"Content-Length: 2\r\n\r\n{}")
    assert b"Authorization: Bearer t\r\n" in post
