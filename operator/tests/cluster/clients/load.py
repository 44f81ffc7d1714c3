"""A daemon and a caller that calls all the time; on SIGTERM prints how every call ended."""

import asyncio
import collections
import json
import signal
import sys
import time

from moorage.client import Caller, ConnectionLost, Daemon, RpcError

url, token = sys.argv[1:]
daemon = Daemon(url, token, machine_id="m1")
ends: collections.Counter[str] = collections.Counter()
began = 0


@daemon.method("m1:add")
async def add(params: dict[str, int]) -> int:
    return params["a"] + params["b"]


async def call(caller: Caller, number: int) -> None:
    global began
    began += 1
    try:
        answer = await caller.call("m1:add", {"a": number, "b": 1}, timeout=5)
        ends["ok" if answer == number + 1 else "wrong"] += 1
    except ConnectionLost:
        ends["connection lost"] += 1
    except RpcError as error:
        ends[error.code] += 1


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    open_calls: set[asyncio.Task[None]] = set()
    async with daemon, Caller(url, token) as caller:
        await daemon.registered()
        sys.stdout.write("calling\n")
        sys.stdout.flush()
        number = 0
        while not stop.is_set():
            number += 1
            task = asyncio.create_task(call(caller, number))
            open_calls.add(task)
            task.add_done_callback(open_calls.discard)
            await asyncio.sleep(0.05)
        deadline = time.monotonic() + 20
        while open_calls and time.monotonic() < deadline:
            await asyncio.wait(open_calls, timeout=1)
        summary = {"began": began, "ends": ends, "open": len(open_calls)}
        sys.stdout.write(json.dumps(summary) + "\n")
        sys.stdout.flush()


asyncio.run(main())
