"""Signs accounts in, opens connections of each; tells which replica serves whom."""

import asyncio
import json
import os
import sys

from moorage.client import sign_in
from moorage.client.socket import Socket

CONNECTIONS = 4


async def replica(url: str, token: str) -> str | None:
    socket = Socket(lambda *_: None, lambda *_: None)
    await socket.open(url, "/v1/updates", {"token": token}, 20)
    try:
        return socket.replica
    finally:
        await socket.close()


async def main(url: str, seeds: list[str]) -> None:
    homes = {}
    for seed in seeds or [os.urandom(32).hex() for _ in range(16)]:
        token = await sign_in(url, bytes.fromhex(seed))
        homes[seed] = [await replica(url, token) for _ in range(CONNECTIONS)]
    sys.stdout.write(json.dumps(homes) + "\n")


asyncio.run(main(sys.argv[1], sys.argv[2:]))
