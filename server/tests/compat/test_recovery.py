"""Connection state recovery, as socket.io-client has it built in."""

from __future__ import annotations

import pytest

from .conftest import MakePeer, Site
from .test_plain_clients import post

JAVASCRIPT = pytest.mark.parametrize(
    "peer", [pytest.param("socket.io-client", marks=pytest.mark.node)], indirect=True
)
"""The other client has no connection state recovery."""


@JAVASCRIPT
async def test_missed_updates_come_once_after_a_cut(site: Site, peer: MakePeer, token: str) -> None:
    client = await peer(site.first)

    async def emit(number: int) -> None:
        body = {
            "event": "update",
            "filter": {"type": "user-scoped-only"},
            "body": {"t": "test", "number": number},
        }
        await post(site.last, "/v1/emit", token, body)

    await emit(0)
    await client.event("update")
    await client.cut()
    await emit(1)
    await emit(2)
    assert (await client.event("connect"))["recovered"] is True
    await emit(3)
    numbers = [(await client.event("update"))["body"]["number"] for _ in range(3)]
    assert numbers == [1, 2, 3]
    assert [name for name, _ in client.events].count("update") == 4


@JAVASCRIPT
async def test_recovered_again_and_again_before_the_first_event(site: Site, peer: MakePeer) -> None:
    client = await peer(site.first)
    for _ in range(3):
        await client.cut()
        assert (await client.event("connect")) == {"sid": client.sid, "recovered": True}


@pytest.mark.parametrize("peer", ["python-socketio"], indirect=True)
async def test_handlers_of_python_clients_get_no_further_argument(
    site: Site, peer: MakePeer, token: str
) -> None:
    client = await peer(site.first)
    body = {"event": "update", "filter": {"type": "user-scoped-only"}, "body": {"t": "test"}}
    await post(site.last, "/v1/emit", token, body)
    await client.event("update")
    (args,) = (args for name, args in client.events if name == "update")
    assert len(args) == 1
