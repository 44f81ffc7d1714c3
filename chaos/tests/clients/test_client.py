from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage_chaos import client as client_module
from moorage_chaos.accounts import Account
from moorage_chaos.client import end_call
from moorage_chaos.clients import Clients, Kind
from moorage_chaos.history import History

from .conftest import Stub

KINDS: list[Kind] = ["raw", "plain"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_is_recorded_with_its_answer(
    stub: Stub, clients: Clients, account: Account, kind: Kind
) -> None:
    stub.answers["m"] = {"ok": True}
    caller = await clients.caller(account, kind=kind)
    operation = await caller.call("m", timeout_ms=1000, group="g")
    [pair] = clients.history.pairs("call")
    assert operation.good
    assert pair.value["group"] == "g"
    assert pair.result["answered"] == operation.id
    [(_, sent)] = stub.seen
    assert sent["timeoutMs"] == 1000
    assert sent["params"]["owner"] == "account-1"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_daemon_keeps_a_journal(stub: Stub, clients: Clients, account: Account, kind: Kind) -> None:
    daemon = await clients.daemon(account, "m", kind=kind)
    for sleep_ms in (0, 1):
        request = {
            "method": "m",
            "params": {"call": 7, "owner": "account-1", "sleepMs": sleep_ms},
            "requestId": "r",
        }
        answer = await stub.io.call("rpc-request", request, to=daemon.sid, timeout=5)
        assert (answer["call"], answer["by"]) == (7, daemon.name)
    runs = clients.history.pairs("run")
    assert [(run.value["call"], run.phase) for run in runs] == [(7, "ok"), (7, "ok")]
    assert [pair.phase for pair in clients.history.pairs("register")] == ["ok"]


async def test_a_cancelled_run_is_stopped_and_noted(stub: Stub, clients: Clients, account: Account) -> None:
    daemon = await clients.daemon(account, "m")
    request = {"method": "m", "params": {"call": 7, "sleepMs": 20_000}, "requestId": "r"}
    await stub.io.emit("rpc-request", request, to=daemon.sid)
    await stub.io.emit("rpc-cancel", {"requestId": "r"}, to=daemon.sid)
    await clients.until(lambda: bool(clients.history.notes("cancelled")), 5, "cancelled")
    await clients.until(lambda: clients.history.pairs("run")[0].end is not None, 5, "run ended")
    assert clients.history.pairs("run")[0].result == {"cancelled": True}


async def test_a_run_that_is_cancelled_before_its_first_step_has_an_end(
    stub: Stub, clients: Clients, account: Account
) -> None:
    daemon = await clients.daemon(account, "m")
    daemon._serve({"method": "m", "params": {"sleepMs": 20_000}, "requestId": "r"}, lambda answer: None)
    daemon._cancelled("r")
    await clients.until(lambda: clients.history.pairs("run")[0].end is not None, 5, "run ended")
    assert clients.history.pairs("run")[0].result == {"cancelled": True}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_connection_ends_its_calls(
    stub: Stub, clients: Clients, account: Account, kind: Kind
) -> None:
    stub.answers["m"] = "cut"
    caller = await clients.caller(account, kind=kind)
    await caller.call("m", timeout_ms=5000)
    assert clients.history.pairs("call")[0].result["code"] == "caller_lost"
    [down] = clients.history.notes("down")
    assert down.value["client"] == caller.name
    await caller.call("m")
    assert clients.history.pairs("call")[1].phase == "fail"


async def test_a_call_without_answer_is_unaccounted(
    stub: Stub, clients: Clients, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "NO_ANSWER_S", 0.05)
    caller = await clients.caller(account)
    await caller.call("silent", timeout_ms=10)
    assert clients.history.pairs("call")[0].result["code"] == "unaccounted"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_connection_is_a_failed_operation(stub: Stub, clients: Clients, kind: Kind) -> None:
    with pytest.raises(ConnectionError):
        await clients.caller(Account("x", token="bad"), kind=kind)
    assert [pair.phase for pair in clients.history.pairs("connect")] == ["fail"]


async def test_cut_is_our_own_doing(stub: Stub, clients: Clients, account: Account) -> None:
    caller = await clients.caller(account)
    caller.cut()
    assert [note.value["cause"] for note in clients.history.notes("down")] == ["cut"]
    await caller.connect()
    assert caller.up
    assert [pair.phase for pair in clients.history.pairs("connect")] == ["ok", "ok"]


async def test_what_is_received_is_noted_or_counted(stub: Stub, clients: Clients, account: Account) -> None:
    reader = await clients.caller(account)
    reader.quiet.add("flood")
    body = {"mark": 3, "owner": "account-1", "t": "mark"}
    await stub.io.emit("flood", {}, to=reader.sid)
    await stub.io.emit("update", {"id": "u", "seq": 9, "body": body}, to=reader.sid)
    await clients.until(lambda: bool(reader.received), 5, "update")
    [note] = clients.history.notes("received")
    assert (note.value["mark"], note.value["seq"], note.value["owner"]) == (3, 9, "account-1")
    assert reader.counts == {"flood": 1}


async def test_emit_is_marked_with_its_operation(stub: Stub, clients: Clients, account: Account) -> None:
    reader = await clients.caller(account)
    operation = await clients.emit(
        account, "update", {"type": "user-scoped-only"}, expect=[reader], skip=reader
    )
    assert operation.good
    [(_, request)] = stub.seen
    assert request["body"]["mark"] == operation.id
    assert request["skipSocketId"] == reader.sid
    [pair] = clients.history.pairs("emit")
    assert pair.value["expect"] == [reader.name]
    assert pair.result["seq"] == 4


async def test_closing_ends_everything_that_was_started(
    stub: Stub, clients: Clients, account: Account
) -> None:
    await clients.caller(account)
    task = clients.start(asyncio.sleep(60))
    await clients.close()
    assert task.cancelled()
    assert not any(made.up for made in clients.made)


@pytest.mark.parametrize(
    ("answer", "phase", "code"),
    [
        ({"ok": True, "result": 5}, "ok", None),
        ({"ok": False, "code": "not_available", "delivered": "no"}, "fail", "not_available"),
        ({"ok": False, "code": "timeout", "delivered": "unknown"}, "info", "timeout"),
        ({"ok": False, "error": "no code"}, "info", "untyped"),
        (None, "info", "untyped"),
        ([], "info", "untyped"),
    ],
)
def test_ends_by_what_is_certain(answer: Any, phase: str, code: str | None) -> None:
    history = History()
    end_call(history.begin("call"), answer)
    [pair] = history.pairs("call")
    assert pair.phase == phase
    assert pair.result.get("code") == code
