"""The harness's side of the front: starts its process, speaks its JSON lines, and is the driver's
``links``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from moorage_chaos.drivers.base import DriverError, Evidence

ANSWER_BOUND_S = 5.0
"""Of one request; the front answers within a loop turn, so anything longer is a front that does not run."""


class FrontControl:
    """One front process. Every request raises :class:`DriverError` if the front does not answer or says
    no.
    """

    def __init__(self, on_ready: Callable[[str, bool, int], None] | None = None) -> None:
        """``on_ready(link, ready, t_ns)`` is called when a member's readiness changes."""
        self._on_ready = on_ready
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._next = 0

    async def start(self, log: Path) -> None:
        """Start the process; what it complains about goes to ``log``."""
        with log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "moorage_chaos.front",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._reader = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Close its stdin, which ends it; kill it if that takes longer than 2 s."""
        process = self._process
        if process is None or process.stdin is None:
            return
        self._process = None
        process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reader is not None:
            await self._reader

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise DriverError("the front is not running")
        self._next += 1
        number = self._next
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(json.dumps({"id": number, "op": op, **fields}).encode() + b"\n")
            async with asyncio.timeout(ANSWER_BOUND_S):
                answer: dict[str, Any] = await future
        except TimeoutError as error:
            raise DriverError(f"the front did not answer {op} within {ANSWER_BOUND_S} s") from error
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise DriverError(f"the front refused {op}: {answer['error']}")
        return answer

    async def _read(self) -> None:
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            if "event" in answer:
                if self._on_ready is not None:
                    self._on_ready(answer["name"], answer["ready"], answer["t"])
                continue
            future = self._waiting.get(answer.get("id", 0))
            if future is not None and not future.done():
                future.set_result(answer)
        for future in self._waiting.values():
            if not future.done():
                future.set_result({"error": "it ended"})

    # -- building --------------------------------------------------------------------------------------
    async def service(self) -> int:
        """Open the Service's port."""
        return int((await self.request("service"))["port"])

    async def link(self, name: str, target: tuple[str, int], *, member: bool = False) -> int:
        """Make a link, or give it a new target; returns its port, which stays. ``member``: of the Service."""
        return int((await self.request("link", name=name, target=list(target), member=member))["port"])

    async def status(self) -> dict[str, dict[str, Any]]:
        """``{link: {"connections", "accepted", "ready", "mode"}}``."""
        links: dict[str, dict[str, Any]] = (await self.request("status"))["links"]
        return links

    # -- drivers.base.Links ----------------------------------------------------------------------------
    async def _fault(self, link: str, do: str, **fields: Any) -> Evidence:
        answer = await self.request("fault", name=link, do=do, **fields)
        return Evidence(answer["t"], f"link-{do}", link, {"connections": answer["connections"], **fields})

    async def cut(self, link: str) -> Evidence:
        return await self._fault(link, "cut")

    async def refuse(self, link: str) -> Evidence:
        return await self._fault(link, "refuse")

    async def freeze(self, link: str) -> Evidence:
        return await self._fault(link, "freeze")

    async def blackhole(self, link: str, direction: Literal["both", "up", "down"] = "both") -> Evidence:
        return await self._fault(link, "blackhole", direction=direction)

    async def slow(self, link: str, *, delay_ms: float = 0, bytes_per_s: int = 0) -> Evidence:
        return await self._fault(link, "slow", delay_ms=delay_ms, bytes_per_s=bytes_per_s)

    async def heal(self, link: str) -> None:
        await self._fault(link, "heal")

    async def connections(self, link: str) -> int:
        return int((await self.status())[link]["connections"])
