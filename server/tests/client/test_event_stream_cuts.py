"""EventStream on real replicas and a real worker, its connections cut at random: the log decides what is right."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moorage.client import Event, EventStream, Rebuilt, sign_in
from moorage.client import event_retry as retry

from ..site import SETUP_APART, Site
from ..valkey import Valkey
from .replicas import Front

log = logging.getLogger(__name__)
pytestmark = SETUP_APART

TURNS = 3
CLIENTS = 6
BOUND_S = 40.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    valkey = Valkey()
    valkey.start()
    site = Site(valkey, tmp_path_factory.mktemp("site"))
    try:
        site.start_all()
        yield site
    finally:
        site.stop()
        valkey.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_S", 0.05)
    # On a slow machine five cuts in a row may come before the stream lives again.
    monkeypatch.setattr(retry, "MOST_S", 0.4)
    monkeypatch.setattr(retry, "TRIES", 1000)


class Account:
    """Plain requests of one account, not through the front."""

    def __init__(self, site: Site, token: str) -> None:
        self.base = f"http://127.0.0.1:{site.processes['a'].port}/v1/sessions"
        self.headers = {"Authorization": f"Bearer {token}"}

    @classmethod
    async def make(cls, site: Site) -> tuple[Account, str]:
        token = await sign_in(f"http://127.0.0.1:{site.processes['a'].port}", Ed25519PrivateKey.generate())
        return cls(site, token), token

    async def request(self, method: str, path: str, **options: Any) -> Any:
        async with (
            aiohttp.ClientSession(headers=self.headers) as http,
            http.request(method, self.base + path, **options) as answer,
        ):
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def session(self) -> str:
        answer = await self.request("POST", "", json={"tag": "t", "metadata": None})
        return str(answer["session"]["id"])

    async def log(self, session_id: str) -> list[str]:
        """All ids that the log keeps."""
        ids: list[str] = []
        after: str | None = "0-0"
        while after is not None:
            page = await self.request("GET", f"/{session_id}/events", params={"after": after, "limit": "100"})
            assert "gap" not in page
            ids += [frame["id"] for frame in page["events"]]
            after = page["next"]
        return ids


async def cut_at_random(front: Front, dice: random.Random) -> None:
    front.cut()  # a short turn has one, too
    while True:
        await asyncio.sleep(dice.uniform(0.05, 0.4))
        front.cut()


async def turn(stream: EventStream, steps: int) -> list[Event]:
    """Start a task and read until its result."""
    await start(stream, steps)
    return await until_result(stream)


async def start(stream: EventStream, steps: int) -> None:
    await stream.start_task({"steps": steps, "pauseMs": 8, "deltas": 4}, "demo")


async def until_result(stream: EventStream) -> list[Event]:
    events: list[Event] = []
    async for item in stream:
        if isinstance(item, Rebuilt):
            pytest.fail(f"nothing was trimmed, so nothing is to be rebuilt: {item}")
        events.append(item)
        if item.type == "task_result":
            break
    return events


async def one_client(site: Site, seed: int) -> EventStream:
    """Some turns over a connection that is cut all the time."""
    dice = random.Random(seed)
    front = Front(site.processes)
    front.next = [dice.choice("ab") for _ in range(1000)]
    account, token = await Account.make(site)
    session_id = await account.session()
    got: list[Event] = []
    async with front.serving(), EventStream(front.url, token, session_id) as stream:
        for _ in range(TURNS):
            await stream.ready()
            # A cut request may or may not have started its task, and events may come before its answer: so it is not
            # cut, and only its answer says that it is over.
            await start(stream, dice.randrange(2, 8))
            cutting = asyncio.create_task(cut_at_random(front, dice))
            got += await until_result(stream)
            cutting.cancel()
    logged = [event for event in got if event.id is not None]
    assert [event.id for event in logged] == await account.log(session_id)
    assert [event.seq for event in logged] == list(range(1, len(logged) + 1))
    assert [event.type for event in logged].count("task_result") == TURNS
    assert stream.statistics.missed == stream.statistics.malformed == 0
    return stream


async def test_cut_at_random_nothing_is_lost_doubled_or_out_of_order(site: Site) -> None:
    seed = random.randrange(10**6)
    try:
        async with asyncio.timeout(BOUND_S):
            streams = await asyncio.gather(*(one_client(site, seed + n) for n in range(CLIENTS)))
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    total = [stream.statistics for stream in streams]
    sums = {name: sum(getattr(one, name) for one in total) for name in ("resumes", "overlaps", "replayed")}
    log.info("seed %d: %s", seed, sums)
    assert sums["resumes"] >= CLIENTS
    assert sums["replayed"] >= 1


async def test_two_tabs_on_two_replicas_get_everything_once(site: Site) -> None:
    account, token = await Account.make(site)
    session_id = await account.session()
    urls = [f"http://127.0.0.1:{site.processes[name].port}" for name in "aba"]
    streams = [EventStream(url, token, session_id) for url in urls]
    async with streams[0], streams[1], streams[2], asyncio.timeout(BOUND_S):
        first = asyncio.create_task(turn(streams[0], 4))
        others = []
        for stream in streams[1:]:
            got = []
            async for item in stream:
                assert isinstance(item, Event)
                got.append(item)
                if item.type == "task_result":
                    break
            others.append(got)
        events = [await first, *others]
    ids = [[event.id for event in got if event.id is not None] for got in events]
    assert ids[0] == ids[1] == ids[2] == await account.log(session_id)


async def test_what_expired_while_away_is_a_gap(site: Site) -> None:
    account, token = await Account.make(site)
    session_id = await account.session()
    url = f"http://127.0.0.1:{site.processes['b'].port}"
    async with asyncio.timeout(BOUND_S):
        async with EventStream(url, token, session_id) as stream:
            events = await turn(stream, 1)
        last = [event.seq for event in events if event.seq is not None][-1]
        for _ in range(3):
            await account.request("POST", f"/{session_id}/events", json={"type": "note", "data": 1})
        with redis.Redis.from_url(site.redis.url) as direct:
            assert direct.delete(f"moorage:events:{{{session_id}}}") == 1
        async with stream:
            rebuilt = await anext(stream)
            assert isinstance(rebuilt, Rebuilt)
            assert rebuilt.gap is not None
            assert (rebuilt.gap.reason, rebuilt.missed) == ("expired", 3)
            await account.request("POST", f"/{session_id}/events", json={"type": "note", "data": 2})
            item = await anext(stream)
            assert isinstance(item, Event)
            assert (item.type, item.seq) == ("note", last + 4)


async def test_a_log_that_is_wiped_while_live_is_said_and_goes_on(site: Site) -> None:
    account, token = await Account.make(site)
    session_id = await account.session()
    url = f"http://127.0.0.1:{site.processes['b'].port}"
    async with EventStream(url, token, session_id) as stream, asyncio.timeout(BOUND_S):
        await turn(stream, 1)
        before = stream.checkpoint
        with redis.Redis.from_url(site.redis.url) as direct:
            name = f"moorage:events:{{{session_id}}}"
            assert direct.delete(name, f"{name}:meta") == 2
        for number in range(3):
            await account.request("POST", f"/{session_id}/events", json={"type": "note", "data": number})
        items = [await anext(stream)]
        assert isinstance(items[0], Rebuilt)
        assert items[0].gap is not None and items[0].gap.reason == "epoch"
        while stream.checkpoint is None or stream.checkpoint.seq != 3:
            items.append(await anext(stream))
    assert before is not None and stream.checkpoint.epoch != before.epoch
    shown = [event.seq for item in items for event in (item.new if isinstance(item, Rebuilt) else [item])]
    # what the turn does not bring is what was appended outside of any turn, before it was fetched
    assert shown == sorted(shown) and set(shown) <= {1, 2, 3}


async def test_the_example_of_the_page_about_clients(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
    found = re.search(
        r"## The events of a session\n.*?```python\n(.*?)```\n\n```python\n(.*?)```", page, re.DOTALL
    )
    assert found is not None
    account, token = await Account.make(site)
    code = "async def example(token):\n" + textwrap.indent(found[1] + found[2], "    ")
    code = code.replace("http://localhost:3005", account.base.removesuffix("/v1/sessions"))
    names: dict[str, Any] = {}
    exec(code, names)
    async with asyncio.timeout(BOUND_S):
        await names["example"](token)
    said = capsys.readouterr().out
    assert "thought {'text':" in said
    assert said.splitlines()[-1].startswith("result {'taskId':")


async def test_a_deleted_session_ends_the_stream(site: Site) -> None:
    account, token = await Account.make(site)
    session_id = await account.session()
    url = f"http://127.0.0.1:{site.processes['b'].port}"
    async with EventStream(url, token, session_id) as stream, asyncio.timeout(BOUND_S):
        await account.request("DELETE", f"/{session_id}")
        with pytest.raises(Exception, match="Session not found"):
            await anext(stream)
    assert stream.state == "closed"


async def test_a_drained_replica_is_left_without_using_a_try(site: Site) -> None:
    leaving = site.start("serve", name="leaving")
    site.wait_ready(leaving)
    account, token = await Account.make(site)
    session_id = await account.session()
    front = Front(site.processes)
    front.default = "leaving"
    async with front.serving(), EventStream(front.url, token, session_id) as stream:
        front.default = "b"
        leaving.popen.terminate()
        async with asyncio.timeout(BOUND_S):
            while stream.statistics.connections == 1 or stream.state != "live":
                await asyncio.sleep(0.005)
        assert str(stream.cause) in ("closed with 1001", "closed with 1012")
        await account.request("POST", f"/{session_id}/events", json={"type": "note", "data": 1})
        item = await anext(stream)
        assert isinstance(item, Event) and item.type == "note"
    leaving.end()
