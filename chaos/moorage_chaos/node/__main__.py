"""``python3 -m moorage_chaos.node``: one session. JSON lines in, JSON lines out; at the end of stdin all is undone.

``idle`` as argument: only wait (what the helper's container does between sessions). ``heal UID…``: undo everything
in those pods and end.

===============  ==================================================================================================
``ping``         -> ``{"t"}``: monotonic ns of the node, to compare clocks by
``signal``       ``pod`` (uid), ``container``, ``number`` -> ``{"t", "pid"}`` and, of SIGKILL, ``gone``, of SIGSTOP and
                 SIGCONT ``state``
``watch``        ``pod``, ``container`` -> ``{"pid"}``; later, unasked, ``{"event": "exit", "container", "t"}``
``link``         ``pod``, ``side``, ``port``, ``do`` (``cut refuse drop slow heal``), its fields
                 -> ``{"t", "connections", …}``
``look``         ``pod``, ``address``, ``port``, ``side`` -> ``{"connections", "conntrack", "stopped", "rules"}``
``heal``         ``pods`` (uids) -> ``{"healed": […]}``
===============  ==================================================================================================
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

from moorage_chaos.node import network, processes


class Session:
    """One harness's requests, and what must be undone when it is gone."""

    def __init__(self) -> None:
        self._touched: set[str] = set()
        self._watched: set[str] = set()

    async def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "ping":
                return {"t": time.monotonic_ns()}
            case "signal":
                return await asyncio.to_thread(self._signal, request)
            case "watch":
                return await self._watch(request["pod"], request["container"])
            case "link":
                return await asyncio.to_thread(self._link, request)
            case "look":
                return await asyncio.to_thread(self._look, request)
            case "heal":
                return {"healed": await asyncio.to_thread(self.heal, request["pods"])}
        raise ValueError(f"unknown op {request['op']!r}")

    def _signal(self, request: dict[str, Any]) -> dict[str, Any]:
        pid = processes.main_of(request["pod"], request["container"])
        number = signal.Signals(request["number"])
        if number == signal.SIGSTOP:
            self._touched.add(request["pod"])
        moment, fd = processes.send(pid, number)
        try:
            answer: dict[str, Any] = {"t": moment, "pid": pid}
            if number == signal.SIGKILL:
                answer["gone"] = processes.until_gone(fd)
            elif number == signal.SIGSTOP:
                answer["state"] = processes.until_state(pid, "Tt")
            elif number == signal.SIGCONT:
                answer["state"] = processes.until_state(pid, "RSDI")
            return answer
        finally:
            os.close(fd)

    async def _watch(self, pod: str, container: str) -> dict[str, Any]:
        pid = await asyncio.to_thread(processes.main_of, pod, container)
        if container in self._watched:
            return {"pid": pid}
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError as error:
            raise processes.NoProcess(f"process {pid} is gone") from error
        self._watched.add(container)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            self._watched.discard(container)
            say({"event": "exit", "container": container, "t": time.monotonic_ns()})

        loop.add_reader(fd, ended)
        return {"pid": pid}

    def _link(self, request: dict[str, Any]) -> dict[str, Any]:
        pod, side, port = request["pod"], request["side"], int(request["port"])
        pid = processes.any_of(pod)
        count = network.established(pid, side, port)
        do, more = request["do"], {}
        self._touched.add(pod)
        if do == "cut":
            moment = time.monotonic_ns()
            count = network.cut(pid, side, port)
        elif do == "heal":
            network.heal(pid, side)
            moment = time.monotonic_ns()
        elif do == "slow":
            delay, rate = float(request.get("delayMs", 0)), int(request.get("bytesPerS", 0))
            more = {"how": network.slow(pid, side, port, delay, rate)}
            moment = time.monotonic_ns()
        else:
            moment = network.apply(pid, side, port, do, request.get("direction", "both"))
        return {"t": moment, "connections": count, **more}

    def _look(self, request: dict[str, Any]) -> dict[str, Any]:
        side, port, address = request["side"], int(request["port"]), request["address"]
        found = processes.of_pod(request["pod"])
        pid = min((one.pid for one in found), default=0)
        return {
            "connections": network.established(pid, side, port) if pid else None,
            "conntrack": network.conntrack(address, port) if address else None,
            "stopped": sum(processes.state(one.pid) in ("T", "t") for one in found),
            "rules": network.in_force(pid) if pid else [],
        }

    def heal(self, pods: list[str]) -> list[str]:
        """Wake what is stopped and remove our rules in these pods; what was done, a line each."""
        done = []
        for pod in pods:
            woken = processes.wake(pod)
            if woken:
                done.append(f"woke {len(woken)} processes of pod {pod}")
            try:
                if network.heal(processes.any_of(pod)):
                    done.append(f"healed the network of pod {pod}")
            except processes.NoProcess:
                pass
            self._touched.discard(pod)
        return done

    def close(self) -> None:
        self.heal(sorted(self._touched))


def say(message: dict[str, Any]) -> None:
    """One line to the harness; a session whose harness is gone has nobody to tell."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError:
        pass


async def serve(session: Session) -> None:
    """Answer until stdin ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    say({"event": "hello", "t": time.monotonic_ns()})
    tasks: set[asyncio.Task[None]] = set()

    async def answer(line: bytes) -> None:
        number = None
        try:
            request = json.loads(line)
            number = request["id"]
            say({"id": number, **await session.handle(request)})
        except (
            KeyError,
            TypeError,
            ValueError,
            OSError,
            TimeoutError,
            processes.NoProcess,
            network.NetworkError,
        ) as error:
            say({"id": number, "error": f"{type(error).__name__}: {error}"})

    while line := await reader.readline():
        task = asyncio.create_task(answer(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks, return_exceptions=True)


def main(argv: list[str]) -> int:
    if argv[:1] == ["idle"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        while True:
            signal.pause()
    session = Session()
    if argv[:1] == ["heal"]:
        for line in session.heal(argv[1:]):
            say({"healed": line})
        return 0
    try:
        asyncio.run(serve(session))
    finally:
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
