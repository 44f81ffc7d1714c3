"""Our clients on the real server: calls that outlive the loss of a connection."""

from __future__ import annotations

import asyncio

import pytest

from moorage.client import Caller, ConnectionLost, Daemon, RpcError

from ..client.replicas import Front, until
from ..client.test_call import Gate
from .conftest import Site
from .test_drain import Place


@pytest.mark.parametrize("lost", ["daemon", "caller", "both"])
async def test_a_resumable_call_outlives_a_cut(site: Site, token: str, lost: str) -> None:
    front = Front({"first": Place(site.first), "last": Place(site.last)})
    gate = Gate()
    async with front.serving():
        front.default = "first"
        daemon = Daemon(front.url if lost != "caller" else site.first, token)
        daemon.add_method("slow", gate, resumable=True)
        await daemon.start()
        await daemon.registered()
        front.default = "last"
        caller = Caller(front.url if lost != "daemon" else site.last, token)
        await caller.start()
        await caller.connected()
        call = asyncio.create_task(
            caller.call("slow", 1, timeout=20, request_id=f"r-{lost}", on_target_lost="wait")
        )
        await until(lambda: gate.started)
        await front.cut_off(*{"daemon": [daemon], "caller": [caller]}.get(lost, [daemon, caller]))
        await daemon.registered()
        await caller.connected()
        gate.open.set()
        assert await call == 1
        assert gate.started == [1]
        await daemon.stop()
        await caller.stop()


async def test_other_calls_end_with_their_connection(site: Site, token: str) -> None:
    front = Front({"first": Place(site.first), "last": Place(site.last)})
    gate = Gate()
    async with front.serving():
        front.default = "last"
        async with Caller(front.url, token) as caller, Caller(site.last, token) as bystander:
            front.default = "first"
            daemon = Daemon(front.url, token)
            daemon.add_method("slow", gate)
            async with daemon:
                lost = asyncio.create_task(caller.call("slow", 1, timeout=20))
                ended = asyncio.create_task(bystander.call("slow", 2, timeout=20))
                await until(lambda: len(gate.started) == 2)
                await front.cut_off(caller, daemon)
                with pytest.raises(ConnectionLost):
                    await lost
                with pytest.raises(RpcError) as end:
                    await ended
                assert end.value.code == "target_disconnected"
                await daemon.registered()
                gate.open.set()
                assert await bystander.call("slow", 3, timeout=20) == 3
