"""Recovery in plain python-socketio applications under uvicorn, two servers on one Redis."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
import socketio
import uvicorn

from moorage.cluster import AsyncServer, RedisStreamsManager, loopback

from ..app.raw import Raw
from ..valkey import Valkey
from .nodes import Node

Until = Callable[..., Awaitable[None]]
SECRET = "a key of the tests, long enough to sign"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still is no slow Redis: what then goes out without an offset comes again by a recovery."""
    monkeypatch.setattr(loopback, "LATE_S", 2.0)


async def later() -> Any:
    """An identity that is none, as what is awaited."""
    return 5


class Site:
    """A server with one room for all and one that is joined later."""

    def __init__(self, url: str) -> None:
        self.manager = RedisStreamsManager(url, recovery_secret=SECRET)
        self.sio = AsyncServer(
            client_manager=self.manager,
            async_mode="asgi",
            identity=lambda environ, auth: auth["user"] if auth.get("user") != "later" else later(),
        )
        self.recovered: list[bool] = []

        @self.sio.event
        async def connect(sid: str, environ: Any, auth: Any) -> None:
            if (auth or {}).get("user") == "nobody":
                raise socketio.exceptions.ConnectionRefusedError("no")
            self.recovered.append(self.sio.is_recovered(sid))
            await self.sio.enter_room(sid, "all")

        @self.sio.event
        async def publish(sid: str, text: str) -> str:
            await self.sio.emit("news", text, room="all")
            return "published"

        @self.sio.event
        async def join(sid: str, room: str) -> None:
            await self.sio.enter_room(sid, room)

    async def listen(self, *, start: bool = True) -> None:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            socketio.ASGIApp(self.sio), lifespan="off", log_config=None, ws="websockets-sansio"
        )
        self.server = uvicorn.Server(config)
        if start:
            assert await self.manager.start()
        self.serving = asyncio.create_task(self.server.serve(sockets=[listener]))
        while not self.server.started:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        self.server.should_exit = True
        await self.sio.shutdown()
        await asyncio.wait_for(self.serving, 10)
        await self.manager.stop()


@pytest_asyncio.fixture
async def sites(valkey: Valkey) -> AsyncIterator[list[Site]]:
    sites = [Site(valkey.url), Site(valkey.url)]
    for site in sites:
        await site.listen()
    yield sites
    for site in sites:
        await site.close()


def client(at: Site, user: str = "u") -> Raw:
    return Raw(at.url, path="/socket.io/", user=user)


async def test_recovered_with_its_rooms_and_what_it_missed(sites: list[Site], until: Until) -> None:
    here, there = sites
    async with client(here) as raw:
        sid = raw.sid
        await raw.send("join", "later")
        await until(lambda: "later" in here.manager.rooms_of(sid))
        await here.sio.emit("one", {"n": 1}, room="all")
        await until(lambda: len(raw.events) == 1)
        for turn, at in enumerate((there, there, here)):
            await raw.cut()
            await here.sio.emit("missed", {"n": turn}, room="later")
            await raw.connect(at.url)
            assert raw.recovered
            assert raw.sid == sid
            assert at.recovered[-1]
            await there.sio.emit("live", "a text", room="later")
            await until(lambda turn=turn: len(raw.events) == 3 + 2 * turn)
        assert [event[0] for event in raw.events] == ["one", *["missed", "live"] * 3]
        assert raw.events[2] == ["live", "a text"]


async def test_only_the_same_one_who_did_not_leave(sites: list[Site], until: Until) -> None:
    here, there = sites
    async with client(here) as raw:
        await raw.cut()
        await raw.connect(there.url, user="another")
        assert not raw.recovered
        await raw.cut()
        await raw.connect(here.url, user="nobody")
        assert raw.refusal == "no"
    async with client(here) as raw:
        await here.sio.disconnect(raw.sid)
        await raw.cut()
        await raw.connect(there.url)
        assert not raw.recovered
        await raw.ws.send_str("41")
        await until(lambda: not there.manager.is_connected(raw.sid, "/"))
        await raw.cut()
        await raw.connect(here.url)
        assert not raw.recovered


async def test_python_clients_see_no_difference(sites: list[Site], until: Until) -> None:
    got: list[tuple[Any, ...]] = []
    client = socketio.AsyncClient(reconnection=False)
    client.on("e", lambda *args: got.append(args))
    await client.connect(sites[0].url, auth={"user": "u"}, transports=["websocket"])
    await sites[1].sio.emit("e", "text", room="all")
    await until(lambda: got == [("text",)])
    await client.disconnect()
    await client.eio.disconnect()


@pytest.mark.parametrize("auth", [{}, {"user": 5}, {"user": "later"}], ids=str)
async def test_an_identity_that_cannot_be_told_is_refused(
    sites: list[Site], caplog: pytest.LogCaptureFixture, auth: dict[str, Any]
) -> None:
    raw = Raw(sites[0].url, path="/socket.io/", **auth)
    async with raw:
        assert raw.refusal == "Connection rejected by server"
    assert not sites[0].recovered  # the connect handler did not run
    (record,) = [record for record in caplog.records if record.name == "moorage.cluster.server"]
    assert "identity" in record.message
    assert record.exc_info is None


async def test_without_an_identity_nobody_is_recovered(sites: list[Site]) -> None:
    raw = Raw(sites[0].url, path="/socket.io/", user=None)
    async with raw:
        assert raw.refusal is None
        assert raw.pid is None


async def test_the_first_client_of_a_server_that_nobody_started(
    valkey: Valkey, sites: list[Site], until: Until
) -> None:
    for number in range(10):
        await sites[0].sio.emit("old", number)
    await until(lambda: valkey.client.xlen("socket.io") >= 10)
    valkey.client.xtrim(
        "socket.io", maxlen=1, approximate=False
    )  # so that no place but the right one will do
    fresh, other = Site(valkey.url), Site(valkey.url)
    await fresh.listen(start=False)
    await other.listen(start=False)
    try:
        async with client(fresh) as raw:
            for at in (sites[0], other, fresh):
                await raw.cut()
                await sites[0].sio.emit("missed", {}, room="all")
                await raw.connect(at.url)  # for `other` it is the first client, too
                assert raw.recovered
            await until(lambda: [event[0] for event in raw.events] == ["missed"] * 3)
    finally:
        await fresh.close()
        await other.close()


async def test_a_handler_answers_after_what_it_has_emitted(sites: list[Site], until: Until) -> None:
    async with client(sites[0]) as raw:
        for turn in range(1, 11):
            await raw.send("publish", "x", ack=turn)
            await until(lambda turn=turn: len(raw.events) == 2 * turn)
        assert raw.events == [["news", "x"], ["ack", "published"]] * 10


async def test_what_is_emitted_to_a_client_goes_before_its_end(sites: list[Site], until: Until) -> None:
    site = sites[0]

    @site.sio.event
    async def kick(sid: str) -> None:
        await site.sio.emit("bye", {}, to=sid)
        await site.sio.disconnect(sid)

    async with client(site) as raw:
        await raw.send("kick")
        await until(lambda: not site.manager.is_connected(raw.sid, "/"))
        await until(lambda: raw.events == [["bye", {}]])
        await raw.cut()
        await raw.connect(sites[1].url)
        assert not raw.recovered


def silence(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on it tells nobody anything, as if it were killed."""
    monkeypatch.setattr(site.manager.writer, "append", lambda *args, **options: None)


async def test_rooms_that_a_killed_server_had_no_time_to_tell_of(
    sites: list[Site], monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    here, there = sites
    async with client(there) as raw:
        await here.sio.emit("one", {}, room="all")
        await until(lambda: raw.events == [["one", {}]])
        silence(there, monkeypatch)
        await here.manager.in_("all").sockets_join(["late", "later"])
        await here.manager.in_("late").sockets_join("last")
        await here.manager.in_("nobody").sockets_join("other")
        await here.manager.except_(raw.sid).sockets_join("other")
        await here.manager.in_(raw.sid).sockets_leave("later")
        await here.sio.emit("missed", {}, room="last")
        await raw.cut()
        await raw.connect(here.url)
        assert raw.recovered
        assert here.manager.rooms_of(raw.sid) == {"all", "late", "last"}
        await here.sio.emit("live", {}, room="late")
        await until(lambda: [event[0] for event in raw.events] == ["one", "missed", "live"])
        assert here.manager.recovery is not None
        assert here.manager.recovery.changes == []


async def test_what_a_killed_server_has_told_stands(
    sites: list[Site], monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    here, there = sites

    def told() -> list[str] | None:
        assert here.manager.recovery is not None
        known = here.manager.recovery._log.sessions("/").get(raw.sid)
        return known.told.rooms if known is not None else None

    async with client(there) as raw:
        await here.manager.in_("all").sockets_join(["late", "stays"])
        await until(lambda: told() == ["all", "late", "stays"])
        await there.sio.leave_room(raw.sid, "late")  # this is no entry of the stream
        await until(lambda: told() == ["all", "stays"])
        silence(there, monkeypatch)
        await here.manager.in_("stays").sockets_join("last")
        await raw.cut()
        await raw.connect(here.url)
        assert raw.recovered
        assert here.manager.rooms_of(raw.sid) == {"all", "stays", "last"}


def test_without_a_secret_it_says_so() -> None:
    with pytest.raises(ValueError, match="recovery_secret"):
        AsyncServer(client_manager=RedisStreamsManager("redis://127.0.0.1"), async_mode="asgi")


async def test_a_server_that_takes_no_part_sends_no_offsets(valkey: Valkey, until: Until) -> None:
    node = Node(valkey.url, recovery_secret=SECRET)
    await node.start()
    try:
        plain = await node.client("s", "all")
        await node.server.emit("e", {"n": 1}, room="all")
        await until(lambda: plain.got == [["e", {"n": 1}]])
    finally:
        await node.stop()
