"""Logs that outlive their containers, doors, endpoints, the state's Redis: parts of the driver over a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api, Where
from moorage_chaos.drivers.kubernetes_doors import Doors
from moorage_chaos.drivers.kubernetes_hands import Hands, ready_addresses, until
from moorage_chaos.drivers.kubernetes_logs import Logs
from moorage_chaos.drivers.kubernetes_nodes import Nodes
from moorage_chaos.drivers.kubernetes_pods import Pod
from moorage_chaos.drivers.kubernetes_state import StateRedis
from moorage_chaos.faults.journal import FileJournal, read

from .api_server import ApiServer

LOG = "/api/v1/namespaces/n/pods/p1/log"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        yield server


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    api = await Api.connect(Where(kubeconfig=server.kubeconfig(tmp_path)))
    yield api
    await api.close()


def pod(main: str = "server") -> Pod:
    return Pod(
        "p1", "uid-1", "2026-01-01T00:00:00Z", main, container="c1", running=True, node="n1", ip="10.0.0.1"
    )


@pytest.mark.parametrize("main", ["server", "worker"])
async def test_the_log_of_a_container_that_died_is_kept(
    server: ApiServer, api: Api, tmp_path: Path, main: str
) -> None:
    """The stream ends with the container; what asks again then gets nothing, and must not lose what was there."""
    introduced: list[str] = []
    logs = Logs(
        api, "n", tmp_path, lambda pod, container, replica: introduced.append(replica), lambda pod, t: None
    )
    one = pod(main)
    server.answers[LOG] = "serving replica=p1-abc\nJOURNAL {}\nthis process stalled\n"
    logs.follow(one, "main-x.1")
    await logs.finished("c1")
    server.answers[LOG] = (404, {"message": "gone"})
    one.going = True
    await asyncio.sleep(0.5)
    assert (tmp_path / "main-x.1.log").read_text().splitlines()[1] == "JOURNAL {}"
    assert introduced == ["p1-abc"]
    await logs.close()


async def test_a_replica_that_lacked_cpu_is_told(server: ApiServer, api: Api, tmp_path: Path) -> None:
    stalled: list[str] = []
    logs = Logs(api, "n", tmp_path, lambda *_: None, lambda pod, t: stalled.append(pod.name))
    server.answers[LOG] = "serving replica=p1-abc\n[warning] this process stalled; it rejoins\n"
    logs.follow(pod(), "main-x.1")
    await logs.finished("c1")
    assert stalled == ["p1"]
    await logs.close()


async def test_doors_opened_at_once_share_one_front(tmp_path: Path) -> None:
    doors = Doors(tmp_path / "log")
    await doors.start("http://127.0.0.1:9")
    try:
        urls = await asyncio.gather(*(doors.open(f"d{n}") for n in range(5)))
        assert len(set(urls)) == 5
        assert doors.links is not None
        await doors.links.cut("d3")
    finally:
        await doors.close()


def test_endpoints_without_a_word_are_ready() -> None:
    slices = [
        {"endpoints": [{"addresses": ["a"], "conditions": {"ready": True}}, {"addresses": ["b"]}]},
        {"endpoints": [{"addresses": ["c"], "conditions": {"ready": False}}]},
        {"endpoints": None},
    ]
    assert ready_addresses(slices) == {"a", "b"}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    folder = tmp_path / "journals"
    folder.mkdir()
    journal = FileJournal(folder)
    yield journal
    journal.close()


async def test_an_undo_is_written_once_and_before_the_deed(api: Api, journal: FileJournal) -> None:
    hands = Hands(api, Nodes(api), "n", "chat", journal, {"do": "kubernetes", "namespace": "n"})
    with pytest.raises(DriverError):
        await hands.link(pod(), "client", "drop")  # there is no helper, but the undo is there
    (record,) = read(journal.path)[1]
    assert (record["what"], record["pods"], record["node"]) == ("heal", ["uid-1"], "n1")
    hands.note("link:uid-1:client", what="heal")
    assert len(read(journal.path)[1]) == 1
    hands.done("link:uid-1:client")
    assert read(journal.path)[1] == []


async def test_what_a_lost_node_cannot_tell_is_not_known(
    server: ApiServer, api: Api, journal: FileJournal
) -> None:
    hands = Hands(api, Nodes(api), "n", "chat", journal, {})
    server.answers["/api/v1/namespaces/moorage-chaos/pods"] = {"items": []}
    seen = await hands.look(pod())
    assert seen["connections"] is None
    assert seen["conntrack"] is None
    assert seen["endpoints"] is None


async def test_the_second_redis_comes_and_goes(server: ApiServer, api: Api, journal: FileJournal) -> None:
    hands = Hands(api, Nodes(api), "n", "chat", journal, {})
    state = StateRedis(hands, "chat")
    paths = [
        "/api/v1/namespaces/n/secrets/chat-chaos-state",
        "/api/v1/namespaces/n/services/chat-chaos-state",
        "/apis/apps/v1/namespaces/n/deployments/chat-chaos-state",
    ]
    for path in paths:
        server.answers[path] = {}
    assert await state.have(True, "redis:1") == {"name": "chat-chaos-state", "key": "url"}
    bodies: dict[str, Any] = {path: body for method, path, body in server.asked if method == "PATCH"}
    assert sorted(bodies) == sorted(paths)
    assert bodies[paths[0]]["stringData"] == {"url": "redis://chat-chaos-state.n.svc:6379/0"}
    assert len(read(journal.path)[1]) == 3
    assert await state.have(False, "") is None
    assert [path for method, path, _ in server.asked if method == "DELETE"] == paths
    assert read(journal.path)[1] == []


async def test_waiting_is_bounded() -> None:
    with pytest.raises(DriverError, match="the moon"):
        await until("the moon", lambda: False, asyncio.Event(), 0.05)
