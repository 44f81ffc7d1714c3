"""Known failures of recovery, and of a Redis that allows less. What recovery promises: ``app/test_recovery.py``."""

from __future__ import annotations

import asyncio
import json

import pytest

from moorage.errors import ConfigurationError
from moorage.settings import load

from ..app.raw import Raw
from ..app.running import running
from ..cluster.nodes import Node
from ..valkey import Valkey
from .conftest import Until

KEY = "k" * 40
ENTRIES, ENTRY_BYTES = 2500, 4000


async def test_failure_12_a_long_gap_is_read_in_pages(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url) as at, Raw(at.url, token=at.token()) as client:
        await at.replica.updates.update("acc", "user-scoped-only", None, {"number": 1})
        await until(lambda: client.of("update"))
        await client.cut()
        packet = {"type": 2, "data": ["e", "x" * ENTRY_BYTES]}
        data = json.dumps({"packet": packet, "opts": {"rooms": ["nobody"], "except": [], "flags": {}}})
        with valkey.client.pipeline(transaction=False) as pipeline:
            for _ in range(ENTRIES):
                pipeline.xadd("socket.io", {"uid": "emitter", "nsp": "/", "type": "3", "data": data})
            pipeline.execute()
        await at.replica.updates.update("acc", "user-scoped-only", None, {"number": 2})
        # In one reply the gap is larger than this, and Redis would cut the connection.
        valkey.client.config_set("client-output-buffer-limit", "normal 6000000 0 0")
        await client.connect()
        assert client.recovered
        await until(lambda: len(client.of("update")) == 2)
        assert [update["body"]["number"] for update in client.of("update")] == [1, 2]


@pytest.mark.parametrize("window", ["Infinity", "inf", "nan", "-1", "1.5", "soon"])
def test_failure_13_a_window_that_is_no_time_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, window: str
) -> None:
    monkeypatch.setenv("SECRET_KEY", KEY)
    monkeypatch.setenv("MOORAGE_RECOVERY_WINDOW_MS", window)
    with pytest.raises(ConfigurationError, match="MOORAGE_RECOVERY_WINDOW_MS"):
        load()


async def test_failure_14_a_redis_without_pub_sub(valkey: Valkey, until: Until) -> None:
    valkey.client.acl_setuser(
        "streams", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all", "-@pubsub"]
    )
    url = valkey.url.replace("redis://", "redis://streams:secret@")
    nodes = [await Node(url, compat="0.2").start() for _ in range(2)]
    try:
        sockets = [await node.client(f"p{i}", "all") for i, node in enumerate(nodes)]
        nodes[0].manager.emit_now("e", [1], ["all"])
        await until(lambda: all(socket.got == [["e", 1]] for socket in sockets))
        while await nodes[0].manager.requests.node_count() < 2:  # by heartbeats here
            await asyncio.sleep(0.005)
        found, complete = await nodes[0].manager.requests.fetch_sockets(["all"])
        assert ({socket.id for socket in found}, complete) == ({"p0", "p1"}, True)
    finally:
        for node in nodes:
            await node.stop()
