"""A daemon as a user would write it: `add` answers, `sleep` takes long."""

import asyncio
import sys

from moorage.client import Daemon

daemon = Daemon(sys.argv[1], sys.argv[2], machine_id="m1")


@daemon.method("m1:add")
async def add(params: dict[str, int]) -> int:
    return params["a"] + params["b"]


@daemon.method("m1:sleep")
async def sleep(params: dict[str, float]) -> str:
    sys.stdout.write("sleeping\n")
    sys.stdout.flush()
    await asyncio.sleep(params["seconds"])
    return "slept"


async def main() -> None:
    async with daemon:
        await daemon.registered(cluster=True)
        sys.stdout.write("registered\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


asyncio.run(main())
