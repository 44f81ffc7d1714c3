"""A helper process that answers JSON lines: started, asked, stopped; the front and the warm parent are such."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage_chaos.drivers.base import DriverError

ANSWER_BOUND_S = 5.0
"""Of one request; all take milliseconds, so anything longer is a helper that does not run."""
STOP_BOUND_S = 2.0
"""From the end of its stdin to its end; then it is killed."""

Message = dict[str, Any]


class Helper:
    """One child process ``python -m module argv``. A request is ``{"id", "op", …}``, its answer carries the same
    ``id``, and ``error`` if it was refused; every line without ``id`` goes to ``on_message``."""

    def __init__(self, name: str, on_message: Callable[[Message], None]) -> None:
        """``name``: as in "the front", for what is said about it."""
        self._name = name
        self._on_message = on_message
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._next = 0
        self.on_end: Callable[[], None] = lambda: None
        """Called when its output has ended, whatever the reason."""

    @property
    def pid(self) -> int:
        """Of the process; 0 if it was stopped, or never started."""
        return self._process.pid if self._process is not None else 0

    async def start(
        self, module: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """What it complains about goes to ``log``; ``env`` is its whole environment (None: ours)."""
        with log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *argv),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=dict(env) if env is not None else None,
                start_new_session=True,
            )
        self._reader = asyncio.create_task(self._read(self._process))

    async def stop(self) -> None:
        """Close its stdin, which ends it; kill it if that takes longer than 2 s. Safe to call twice."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_BOUND_S):
                await process.wait()
        except TimeoutError:
            process.kill()
        if self._reader is not None:
            # Its output ends with it, unless something that it started still holds the other end.
            await asyncio.wait([self._reader], timeout=STOP_BOUND_S)
            process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way to let go of a pipe
            await self._reader

    async def request(self, op: str, **fields: Any) -> Message:
        """Its answer. Raises DriverError if it does not run, does not answer, or says no."""
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise DriverError(f"{self._name} is not running")
        self._next += 1
        number = self._next
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(json.dumps({"id": number, "op": op, **fields}).encode() + b"\n")
            async with asyncio.timeout(ANSWER_BOUND_S):
                answer: Message = await future
        except TimeoutError as error:
            raise DriverError(f"{self._name} did not answer {op} within {ANSWER_BOUND_S} s") from error
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise DriverError(f"{self._name} refused {op}: {answer['error']}")
        return answer

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            message: Message = json.loads(line)
            if "id" not in message:
                self._on_message(message)
                continue
            future = self._waiting.get(message["id"])
            if future is not None and not future.done():
                future.set_result(message)
        for future in self._waiting.values():
            if not future.done():
                future.set_result({"error": "it ended"})
        self.on_end()
