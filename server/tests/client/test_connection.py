from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.client import Caller, Connection, ConnectionLost, Refused, Unreachable
from moorage.client.errors import FATAL_REFUSALS

from .replicas import Cluster, Front, until


async def test_the_connect_payload_is_seen(cluster: Cluster, front: Front) -> None:
    async with Connection(front.url, "good") as connection:
        assert connection.replica == "a"
        assert connection.sid in cluster.replicas["a"].sids
        assert not connection.recovered
    assert (connection.replica, connection.sid) == (None, None)


async def test_a_server_that_does_not_name_itself_is_no_problem(cluster: Cluster, front: Front) -> None:
    cluster.replicas["a"].connect_payload = {}
    async with Connection(front.url, "good") as connection:
        assert connection.replica is None
        assert connection.state == "connected"


async def test_the_handshake_says_who_we_are(cluster: Cluster, front: Front) -> None:
    async with Connection(front.url, "good", session_id="s1", app_state="active", label="tests 1.0"):
        pass
    assert cluster.auths == [
        {
            "token": "good",
            "clientType": "session-scoped",
            "sessionId": "s1",
            "appState": "active",
            "client": "tests 1.0",
            "pid": None,
            "offset": None,
        }
    ]


def test_a_connection_has_one_scope() -> None:
    with pytest.raises(ValueError, match="not both"):
        Connection("http://127.0.0.1:1", "good", machine_id="m", session_id="s")


@pytest.mark.parametrize("message", sorted(FATAL_REFUSALS))
async def test_a_refusal_that_cannot_pass_ends_it(cluster: Cluster, front: Front, message: str) -> None:
    cluster.refuse = message
    connection = Connection(front.url, "good")
    with pytest.raises(Refused) as refused:
        await connection.run()
    assert refused.value.message == message
    assert len(cluster.auths) == 1


async def test_who_waits_for_the_connection_learns_of_the_refusal(cluster: Cluster, front: Front) -> None:
    caller = Caller(front.url, "bad")
    await caller.start()
    with pytest.raises(Refused, match="Invalid authentication token"):
        await caller.connected()
    assert caller.state == "failed"
    with pytest.raises(ConnectionLost) as end:
        await caller.call("m")
    assert end.value.delivered == "no"
    await caller.stop()
    assert caller.state == "closed"


async def test_any_other_refusal_may_pass(cluster: Cluster, front: Front) -> None:
    cluster.refuse = "come back later"
    connection = Connection(front.url, "good")
    await connection.start()
    await until(lambda: len(cluster.auths) >= 2 and "come back later" in str(connection.cause))
    cluster.refuse = None
    await connection.connected()
    await connection.stop()


async def test_a_refused_token_is_fetched_anew_once(cluster: Cluster, front: Front) -> None:
    tokens = iter(["old", "good", "never asked"])

    async def fresh() -> str:
        return next(tokens)

    async with Connection(front.url, fresh) as connection:
        assert connection.state == "connected"
        front.cut()
        await until(lambda: len(cluster.auths) == 3)
    assert [auth["token"] for auth in cluster.auths] == ["old", "good", "good"]
    assert cluster.headers == ["Bearer old", "Bearer good", "Bearer good"]
    assert next(tokens) == "never asked"


async def test_a_new_token_that_is_refused_too_ends_it(cluster: Cluster, front: Front) -> None:
    connection = Connection(front.url, lambda: "bad")
    with pytest.raises(Refused):
        await connection.run()
    assert len(cluster.auths) == 2


async def test_a_token_function_that_fails_is_asked_again(cluster: Cluster, front: Front) -> None:
    asked = 0

    def fresh() -> str:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise OSError("the identity provider is away")
        return "good"

    async with Connection(front.url, fresh):
        assert asked == 3


@pytest.mark.parametrize("token", [None, 5, b"good"], ids=str)
async def test_what_is_no_token(cluster: Cluster, front: Front, token: Any) -> None:
    with pytest.raises(TypeError, match="token must be a str"):
        Caller(front.url, token)
    connection = Connection(front.url, lambda: token)
    await connection.start()
    await until(lambda: "the function returned" in str(connection.cause))
    await connection.stop()
    assert not cluster.auths


async def test_states_in_their_order(front: Front) -> None:
    states: list[str] = []
    connection = Connection(front.url, "good")
    connection.on_state(states.append)
    async with connection:
        front.cut()
        await until(lambda: states.count("connected") == 2)
    assert states == ["connecting", "connected", "disconnected", "connecting", "connected", "closed"]


async def test_it_waits_for_a_server_that_is_not_there_yet(front: Front) -> None:
    front.default = None
    connection = Connection(front.url, "good")
    await connection.start()
    with pytest.raises(Unreachable, match="not connected within"):
        await connection.connected(timeout=0.05)
    await until(lambda: front.accepted >= 2)
    front.default = "a"
    await connection.connected()
    await connection.stop()


async def test_a_handshake_without_an_answer_is_given_up(front: Front) -> None:
    front.frozen = True
    connection = Connection(front.url, "good", open_timeout=0.1)
    await connection.start()
    await until(lambda: "no answer within" in str(connection.cause))
    front.frozen = False
    await connection.connected()
    await connection.stop()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_a_server_that_speaks_something_else_is_unreachable(reply: bytes) -> None:
    attempts = answered = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts, answered
        attempts += 1
        try:
            await reader.read(1024)
            writer.write(reply)
        finally:
            writer.close()
            answered += 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = Connection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "good")
    await connection.start()
    await until(lambda: attempts >= 2 and connection.cause is not None)
    assert isinstance(connection.cause, Unreachable)
    await connection.stop()
    server.close()
    await until(lambda: answered == attempts)


async def test_a_stop_says_goodbye_and_a_cut_does_not(cluster: Cluster, front: Front) -> None:
    async with Connection(front.url, "good") as connection:
        await front.cut_off(connection)
        await until(lambda: len(cluster.gone) == 1)
        await connection.connected()
    await until(lambda: len(cluster.gone) == 2)
    reasons = [reason for _, _, reason in cluster.gone]
    assert reasons[0] != "client disconnect"
    assert reasons[1] == "client disconnect"


async def test_what_was_sent_before_a_stop_arrives(cluster: Cluster, front: Front) -> None:
    async with Connection(front.url, "good") as connection:
        for number in range(100):
            assert connection.emit("session-alive", {"sid": "s", "time": number})
    await until(lambda: cluster.gone)
    assert [p["time"] for p in cluster.payloads("session-alive")] == list(range(100))


async def test_a_disconnect_by_the_server_is_not_the_end(cluster: Cluster, front: Front) -> None:
    async with Connection(front.url, "good") as connection:
        sid = connection.sid
        await cluster.replicas["a"].sio.disconnect(sid)
        await until(lambda: connection.sid not in (None, sid))


async def test_it_can_be_started_again(front: Front) -> None:
    connection = Connection(front.url, "good")
    for _ in range(2):
        async with connection:
            assert connection.state == "connected"
        assert connection.state == "closed"
        with pytest.raises(Unreachable, match="closed"):
            await connection.connected()


async def test_requests_and_app_state(cluster: Cluster, front: Front) -> None:
    async with Connection(front.url, "good", app_state="background") as connection:
        assert await connection.request("message", {"sid": "s", "message": "m"}) == {"ok": True}
        connection.set_app_state("active")
        await until(lambda: cluster.payloads("app-state") == [{"state": "active"}])
        front.cut()
        await until(lambda: len(cluster.auths) == 2)
    assert [auth["appState"] for auth in cluster.auths] == ["background", "active"]
    assert connection.emit("session-end") is False
    with pytest.raises(ConnectionLost):
        await connection.request("message", {})


async def test_a_request_is_bounded(cluster: Cluster, front: Front) -> None:
    cluster.mute = True
    async with Connection(front.url, "good") as connection:
        with pytest.raises(TimeoutError):
            await connection.request("rpc-call", {}, timeout=0.05)


async def test_updates_come_once_and_in_order(cluster: Cluster, front: Front) -> None:
    got: list[Any] = []
    async with Connection(front.url, "good") as connection:
        connection.on("update", lambda update: got.append(update["id"]))
        for key in ("u1", "u2", "u1", "u3", "u2"):
            await cluster.replicas["a"].send("update", {"id": key})
        await until(lambda: "u3" in got)
        await connection.request("message", {})
    assert got == ["u1", "u2", "u3"]


async def test_recovery_names_the_last_offset(cluster: Cluster, front: Front) -> None:
    cluster.replicas["a"].connect_payload["pid"] = "p1"
    got: list[Any] = []
    async with Connection(front.url, "good") as connection:
        connection.on("update", got.append)
        await cluster.replicas["a"].send("update", {"id": "u1"}, "1-0")
        await cluster.replicas["a"].send("update", {"id": "u2"}, "2-0")
        await until(lambda: len(got) == 2)
        assert not connection.recovered
        front.cut()
        await until(lambda: connection.recovered and connection.state == "connected")
        front.cut()
        await until(lambda: len(cluster.auths) == 3)
        cluster.replicas["a"].connect_payload["pid"] = "p2"
        await connection.connected()
        front.cut()
        await until(lambda: len(cluster.auths) == 4 and connection.state == "connected")
        assert not connection.recovered
    assert got == [{"id": "u1"}, {"id": "u2"}]
    assert [(auth.get("pid"), auth.get("offset")) for auth in cluster.auths] == [
        (None, None),
        ("p1", "2-0"),
        ("p1", "2-0"),
        ("p1", "2-0"),
    ]


async def test_a_connection_that_went_silent_is_replaced(
    cluster: Cluster, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.client.keeper.PROBE_S", 0.1)
    async with Connection(front.url, "good", open_timeout=0.5) as connection:
        await until(lambda: cluster.payloads("ping"))
        first = connection.sid
        front.frozen = True
        await until(lambda: connection.state != "connected")
        assert "no answer to ping" in str(connection.cause) or "no answer within" in str(connection.cause)
        front.frozen = False
        front.cut()
        await until(lambda: connection.sid not in (None, first))


async def test_junk_from_the_server_is_ignored(cluster: Cluster, front: Front) -> None:
    replica = cluster.replicas["a"]
    async with Connection(front.url, "good") as connection:
        eio_sid = replica.sio.manager.eio_sid_from_sid(connection.sid, "/")
        for junk in (
            "2",
            "2[]",
            "2{}",
            '2["update"]',
            '2[5,"x"]',
            "3",
            "37[",
            "9",
            "x",
            "51-",
            '399["late"]',
            "",
        ):
            await replica.sio.eio.send(eio_sid, junk)
        assert await connection.request("message", {}) == {"ok": True}
        assert connection.state == "connected"
