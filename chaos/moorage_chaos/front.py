"""The front: a process that stands for the Service and for the network between client, replica and Redis.

It listens on one port for the Service (round robin over the ready replicas, a new choice for each
connection) and on one port per link, and copies bytes. A link can be cut, refused, frozen, black-holed and
slowed. It answers JSON lines on stdin and stdout, and ends when stdin does, so it never outlives the harness.

Requests, each with an ``id`` that its answer repeats (``{"id", "ok": true, …}`` or ``{"id", "error"}``):

===========  ==========================================================================================
``service``  -> ``{"port"}``: open the Service's port
``link``     ``name``, ``target`` ``[host, port]``, ``member`` (of the Service) -> ``{"port"}``; the same
             name again gives it a new target
``fault``    ``name``, ``do`` (``cut refuse freeze blackhole slow heal``), its fields
             -> ``{"connections", "t"}``
``status``   -> ``{"links": {name: {"connections", "accepted", "ready", "mode"}}}``
===========  ==========================================================================================

Unasked it says ``{"event": "ready", "name", "ready", "t"}`` whenever a member's readiness changes.

A replica is ready when ``GET /ready`` says 200, asked directly (as kubelet does: no link fault in between)
each 100 ms, each 20 ms before it first is. One whose connection is refused is left out at once and the next one is
taken.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

from moorage_chaos.drivers.probe import get
from moorage_chaos.front_link import Link, Side, Splice

POLL_S = 0.1
"""Between two looks at a replica's /ready: short beside the 1 s that anything promised here takes."""
FIRST_POLL_S = 0.02
"""The same until a new target is ready for the first time, so that a row's clock is not the poll's."""
POLL_BOUND_S = 1.0
"""kubelet's default timeoutSeconds of a probe."""
CONNECT_BOUND_S = 5.0


class Front:
    """All links of one system."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self.links: dict[str, Link] = {}
        self._members: dict[str, asyncio.Task[None]] = {}
        self._ready: dict[str, bool] = {}
        self._turn = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # -- requests --------------------------------------------------------------------------------------
    async def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "service":
                return {"port": await self._listen(None, request.get("port", 0))}
            case "link":
                return await self._link(
                    request["name"], tuple(request["target"]), bool(request.get("member"))
                )
            case "fault":
                link = self.links[request["name"]]
                count = len(link.splices)
                t = time.monotonic_ns()
                link.apply(request["do"], request)
                return {"connections": count, "t": t}
            case "status":
                return {"links": {name: self._status(name, link) for name, link in self.links.items()}}
        raise ValueError(f"unknown op {request['op']!r}")

    def _status(self, name: str, link: Link) -> dict[str, Any]:
        return {
            "connections": len(link.splices),
            "accepted": link.accepted,
            "ready": self._ready.get(name, False),
            "mode": link.mode,
        }

    async def _link(self, name: str, target: tuple[str, int], member: bool) -> dict[str, Any]:
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = Link(name, target)
            link.port = await self._listen(link, 0)
        link.target = target
        if member:
            self._ready.setdefault(name, False)
            self._set_ready(name, False)
            task = self._members.pop(name, None)
            if task is not None:
                task.cancel()
            self._members[name] = asyncio.create_task(self._watch(name, target))
        return {"port": link.port}

    async def _listen(self, link: Link | None, port: int) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Side(self._accepted, link), "127.0.0.1", port, backlog=4096)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    # -- readiness -------------------------------------------------------------------------------------
    async def _watch(self, name: str, target: tuple[str, int]) -> None:
        seen = False
        while True:
            try:
                status, _ = await get(f"http://{target[0]}:{target[1]}/ready", timeout_s=POLL_BOUND_S)
                ready = status == 200
            except (OSError, TimeoutError, ValueError):
                ready = False
            self._set_ready(name, ready)
            seen = seen or ready
            await asyncio.sleep(POLL_S if seen else FIRST_POLL_S)

    def _set_ready(self, name: str, ready: bool) -> None:
        if self._ready[name] != ready:
            self._ready[name] = ready
            self._say({"event": "ready", "name": name, "ready": ready, "t": time.monotonic_ns()})

    def _choices(self) -> list[Link]:
        """Ready members, the next one in turn first."""
        ready = [self.links[name] for name in self._members if self._ready[name]]
        self._turn += 1
        at = self._turn % len(ready) if ready else 0
        return ready[at:] + ready[:at]

    # -- connections -----------------------------------------------------------------------------------
    def _accepted(self, side: Side) -> None:
        task = asyncio.create_task(self._connect(side, side.pinned))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, client: Side, pinned: Link | None) -> None:
        """Join the accepted connection with one to the link's target, or reset it if there is none."""
        loop = asyncio.get_running_loop()
        for link in [pinned] if pinned else self._choices():
            splice = Splice(link, client)
            if link.mode == "refuse":
                splice.reset()
                return
            await link.passable.wait()
            if client.gone or splice.lost:
                splice.reset()
                return
            try:
                async with asyncio.timeout(CONNECT_BOUND_S):
                    await loop.create_connection(splice.server_side, *link.target)
            except (OSError, TimeoutError):
                splice.forget()
                if pinned is None:
                    self._set_ready(link.name, False)
                continue
            return
        client.reset()


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    front = Front(_say)
    while line := await reader.readline():
        request: dict[str, Any] = {}
        try:
            request = json.loads(line)
            answer = {"id": request["id"], "ok": True, **await front.handle(request)}
        except (KeyError, TypeError, ValueError, OSError) as error:
            answer = {"id": request.get("id"), "error": f"{type(error).__name__}: {error}"}
        _say(answer)


def main() -> None:
    uvloop.run(_serve())


if __name__ == "__main__":
    main()
