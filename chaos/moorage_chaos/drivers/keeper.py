"""The harness's side of :mod:`moorage_chaos.warm`: starts processes, sends signals, learns of each end."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage_chaos.drivers.base import DriverError

ANSWER_BOUND_S = 5.0
"""Of a fork or a signal; both take milliseconds."""
WARM_BOUND_S = 60.0
"""Of importing the server, on a cold disk beside other work."""


@dataclass
class Child:
    """A process that the keeper started."""

    pid: int
    start: int
    """Start time, clock ticks since boot."""
    started_ns: int
    keeper: Keeper
    exit_code: int | None = None
    gone_ns: int = 0
    on_exit: list[Callable[[Child], None]] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def deliver(self, number: signal.Signals) -> int:
        """Send a signal through the parent, which cannot hit a reused pid. Monotonic ns just before the
        signal. Raises DriverError if it has ended."""
        answer = await self.keeper.request("signal", pid=self.pid, number=int(number))
        return int(answer["t"])

    async def wait(self, timeout_s: float) -> int:
        async with asyncio.timeout(timeout_s):
            await self.ended.wait()
        assert self.exit_code is not None
        return self.exit_code


class Keeper:
    """One warm parent and its children."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._preload = list(preload)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._children: dict[int, Child] = {}
        self._early: dict[int, dict[str, Any]] = {}
        self._warm = asyncio.Event()
        self._next = 0

    async def start(self, log: Path, env: Mapping[str, str]) -> None:
        """Start importing; :meth:`start_entry` waits for it."""
        with log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "moorage_chaos.warm",
                *self._preload,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=dict(env),
                start_new_session=True,
            )
        self._reader = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """End it, and with it all it started. Safe to call twice."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(2.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reader is not None:
            await self._reader

    async def start_entry(
        self, entry: str, args: Sequence[Any], argv: Sequence[str], env: Mapping[str, str], log: Path
    ) -> Child:
        """Fork and call ``entry`` (``module:function``) with ``args``. Raises DriverError."""
        return await self._start("start", argv, env, log, entry=entry, args=list(args))

    async def execute(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> Child:
        """Fork and exec a program. Raises DriverError."""
        return await self._start("exec", argv, env, log)

    async def _start(
        self, op: str, argv: Sequence[str], env: Mapping[str, str], log: Path, **more: Any
    ) -> Child:
        try:
            async with asyncio.timeout(WARM_BOUND_S):
                await self._warm.wait()
        except TimeoutError as error:
            raise DriverError(f"the server was not imported within {WARM_BOUND_S} s") from error
        fields = {"argv": list(argv), "env": dict(env), "log": str(log)}
        answer = await self.request(op, **fields, **more)
        child = Child(answer["pid"], answer["start"], answer["t"], self)
        self._children[child.pid] = child
        if early := self._early.pop(child.pid, None):
            self._ended(child, early)
        return child

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise DriverError("the warm parent is not running")
        self._next += 1
        number = self._next
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(json.dumps({"id": number, "op": op, **fields}).encode() + b"\n")
            async with asyncio.timeout(ANSWER_BOUND_S):
                answer: dict[str, Any] = await future
        except TimeoutError as error:
            raise DriverError(f"the warm parent did not answer {op} within {ANSWER_BOUND_S} s") from error
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise DriverError(f"{op}: {answer['error']}")
        return answer

    async def _read(self) -> None:
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            message: dict[str, Any] = json.loads(line)
            if "ready" in message:
                self._warm.set()
            elif "exit" in message:
                child = self._children.pop(message["exit"], None)
                if child is None:
                    self._early[message["exit"]] = message
                else:
                    self._ended(child, message)
            else:
                future = self._waiting.get(message.get("id", 0))
                if future is not None and not future.done():
                    future.set_result(message)
        for future in self._waiting.values():
            if not future.done():
                future.set_result({"error": "the warm parent ended"})
        now = asyncio.get_running_loop().time()
        for child in list(self._children.values()):
            self._ended(child, {"code": -int(signal.SIGKILL), "t": int(now * 1e9)})
        self._children.clear()

    def _ended(self, child: Child, message: dict[str, Any]) -> None:
        self._children.pop(child.pid, None)
        child.exit_code = message["code"]
        child.gone_ns = message["t"]
        child.ended.set()
        for callback in child.on_exit:
            callback(child)
