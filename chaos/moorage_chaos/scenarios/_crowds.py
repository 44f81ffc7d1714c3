"""Readers in processes of their own (:mod:`moorage_chaos.log_crowd`), as a row uses them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moorage_chaos.children import child
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.history import History
from moorage_chaos.scenarios.base import Context

UP_S = 60.0
"""Until all are connected: a few hundred handshakes each."""
END_S = 60.0
"""Until all have said what they saw."""


class Crowd:
    """Made by :func:`crowd`."""

    def __init__(self, process: asyncio.subprocess.Process, history: History) -> None:
        self._process = process
        self._history = history

    async def ask(self, order: dict[str, Any], bound_s: float) -> dict[str, Any]:
        """One line each way. Raises DriverError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        try:
            async with asyncio.timeout(bound_s):
                line = await self._process.stdout.readline()
        except TimeoutError as error:
            raise DriverError(f"a process of readers did not answer within {bound_s:g} s") from error
        if not line:
            raise DriverError("a process of readers has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def until(self, type: str, bound_s: float) -> int:
        """How many readers have rendered such an event when all have, or after ``bound_s``."""
        answer = await self.ask({"until": type, "boundS": bound_s}, bound_s + 10.0)
        return int(answer["reached"])

    async def end(self) -> None:
        """Close all readers and take over what they have recorded."""
        assert self._process.stdout is not None
        count = (await self.ask({"end": True}, END_S))["lines"]
        async with asyncio.timeout(END_S):
            lines = [await self._process.stdout.readline() for _ in range(count)]
        await asyncio.to_thread(self._history.join, lines)


@asynccontextmanager
async def crowd(ctx: Context, readers: list[dict[str, str]]) -> AsyncIterator[Crowd]:
    """``readers``: rows of ``name``, ``session``, ``url``, ``token``. All ready. Raises DriverError."""
    async with child("moorage_chaos.log_crowd") as process:
        made = Crowd(process, ctx.history)
        answer = await made.ask({"mutant": ctx.history.header.get("mutant"), "readers": readers}, UP_S)
        ctx.progress(f"{answer['up']} readers")
        yield made
