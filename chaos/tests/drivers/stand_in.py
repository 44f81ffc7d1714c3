"""A replica reduced to what a driver sees of it: /ready, /metrics, a log line per connection, SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys


class StandIn:
    def __init__(self) -> None:
        self.draining = False
        self.done = asyncio.Event()
        self.sids = 0

    def page(self, path: str) -> tuple[int, str]:
        if path == "/ready":
            degraded = json.dumps(
                {"degraded": os.path.exists(os.environ.get("STAND_IN_DEGRADED", "/nonexistent"))}
            )
            return (503 if self.draining else 200), degraded
        if path == "/metrics":
            return (
                200,
                f'rpc_registrations {os.environ.get("STAND_IN_REGISTRATIONS", "0")}\nx{{a="1"}} 2\nx{{a="2"}} 3\n',
            )
        return 200, f"{os.environ['MOORAGE_REPLICA_ID']} {' '.join(sys.argv)}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = (await reader.readline()).decode()
            if first.startswith("PING"):  # to Redis and back
                host, port = os.environ["REDIS_URL"].removeprefix("redis://").split(":")
                redis_reader, redis_writer = await asyncio.open_connection(host, int(port))
                redis_writer.write(b"PING\r\n")
                writer.write(await redis_reader.readline())
                redis_writer.close()
            elif first.startswith("SID"):
                print(f"connected {first.split()[1]}", flush=True)  # noqa: T201 -- as a replica does
                writer.write(b"ok\n")
            else:
                status, body = self.page(first.split()[1])
                writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
        except (OSError, IndexError):
            pass
        finally:
            writer.close()

    async def drain(self) -> None:
        self.draining = True
        while not self.drained():
            await asyncio.sleep(0.01)
        self.done.set()

    def drained(self) -> bool:
        """The file that it waits for, if any, is there."""
        until = os.environ.get("STAND_IN_DRAIN_UNTIL")
        return until is None or os.path.exists(until)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        loop.add_signal_handler(signal.SIGTERM, lambda: tasks.append(loop.create_task(self.drain())))
        for name in ("PORT", "METRICS_PORT"):
            await asyncio.start_server(self.serve, "127.0.0.1", int(os.environ[name]))
        await self.done.wait()


def main() -> None:
    if os.environ.get("STAND_IN_EXIT"):
        sys.exit(int(os.environ["STAND_IN_EXIT"]))
    asyncio.run(StandIn().run())


def worker(mutant: str | None) -> None:
    """A worker reduced the same way: what it was given, on stdout, and its metrics."""
    told = {
        "WORKER": f"{os.environ['MOORAGE_REPLICA_ID']} {' '.join(sys.argv)}",
        "REDIS": os.environ["REDIS_URL"],
        "STATE": os.environ.get("STATE_URL", ""),
    }
    for name, value in told.items():
        print(name, value, flush=True)  # noqa: T201 -- what the test reads
    os.environ["PORT"] = "0"
    asyncio.run(StandIn().run())
