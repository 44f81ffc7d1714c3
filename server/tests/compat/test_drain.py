"""A replica leaves under load: with our clients that costs no call."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moorage.client import Caller, Daemon, sign_in

from ..client.replicas import Front
from ..valkey import Valkey
from .conftest import START_BOUND_S, end, serve, wait_ready


class Place:
    """What a Front needs to know of a replica."""

    def __init__(self, url: str) -> None:
        self.port = int(url.rsplit(":", 1)[1])


async def test_no_call_is_lost(valkey: Valkey, tmp_path: Path) -> None:
    chance = random.Random(1)
    servers = {name: serve(valkey.url, tmp_path / f"{name}.log", drain_ms=5000) for name in "ab"}
    front = Front({name: Place(url) for name, (_, url, _) in servers.items()})
    clients: list[Daemon | Caller] = []

    async def work(params: Any) -> Any:
        await asyncio.sleep(chance.choice([0, 0, 0.02, 0.6]))
        return params

    try:
        for server in servers.values():
            await asyncio.to_thread(wait_ready, *server)
        token = await sign_in(servers["b"][1], Ed25519PrivateKey.generate())
        async with front.serving():
            for number in range(4):
                front.default = "ab"[number % 2]
                daemon, caller = Daemon(front.url, token, machine_id=f"m{number}"), Caller(front.url, token)
                daemon.add_method(f"m{number}:work", work)
                for client in (daemon, caller):
                    clients.append(client)
                    await client.start()
                    await client.connected()
                await daemon.registered(cluster=True)
            front.default = "b"
            callers = [client for client in clients if isinstance(client, Caller)]
            leaving = servers["a"][0]
            leaving.terminate()
            calls: list[asyncio.Task[Any]] = []
            async with asyncio.timeout(START_BOUND_S):
                while leaving.poll() is None:
                    method = f"m{chance.randrange(4)}:work"
                    calls.append(
                        asyncio.create_task(chance.choice(callers).call(method, len(calls), timeout=8))
                    )
                    await asyncio.sleep(0.02)
                assert await asyncio.gather(*calls) == list(range(len(calls)))
            assert leaving.returncode == 0
            assert len({client.replica for client in clients}) == 1
            for client in clients:
                await client.stop(grace=0)
    finally:
        end(process for process, _, _ in servers.values())
