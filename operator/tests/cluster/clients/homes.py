"""Signs accounts in, opens connections of each; tells which replica serves whom."""

import asyncio
import json
import os
import sys

from moorage.client import Unreachable, sign_in
from moorage.client.socket import Socket

CONNECTIONS = 4
REACHED_SECONDS = 30.0
"""[s] A node opens a Service's new port at its own pace."""


async def replica(url: str, token: str) -> str | None:
    socket = Socket(lambda *_: None, lambda *_: None)
    await socket.open(url, "/v1/updates", {"token": token}, 20)
    try:
        return socket.replica
    finally:
        await socket.close()


async def signed_in(url: str, seed: str) -> str:
    async with asyncio.timeout(REACHED_SECONDS):
        while True:
            try:
                return await sign_in(url, bytes.fromhex(seed))
            except Unreachable:
                await asyncio.sleep(0.2)


async def main(url: str, seeds: list[str]) -> None:
    homes = {}
    for seed in seeds or [os.urandom(32).hex() for _ in range(16)]:
        token = await signed_in(url, seed)
        homes[seed] = [await replica(url, token) for _ in range(CONNECTIONS)]
    sys.stdout.write(json.dumps(homes) + "\n")


asyncio.run(main(sys.argv[1], sys.argv[2:]))
