"""The harness's side of :mod:`moorage_chaos.warm`: starts processes, sends signals, learns of each end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.helper import Helper

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
        self._helper = Helper("the warm parent", self._told)
        self._helper.on_end = self._lost
        self._children: dict[int, Child] = {}
        self._early: dict[int, dict[str, Any]] = {}
        self._warm = asyncio.Event()
        self.request = self._helper.request
        self.stop = self._helper.stop
        """Ends it, and with it all it started."""

    @property
    def pid(self) -> int:
        """Of the warm parent; 0 if it does not run."""
        return self._helper.pid

    async def start(self, log: Path, env: Mapping[str, str]) -> None:
        """Start importing; :meth:`start_entry` waits for it."""
        await self._helper.start("moorage_chaos.warm", self._preload, log, env)

    async def start_entry(
        self,
        entry: str,
        args: Sequence[Any],
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        netns: str = "",
    ) -> Child:
        """Fork and call ``entry`` (``module:function``) with ``args``; ``netns``: in this network namespace (a
        file). Raises DriverError."""
        return await self._start("start", argv, env, log, entry=entry, args=list(args), netns=netns)

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

    def _told(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._warm.set()
            return
        child = self._children.pop(message["exit"], None)
        if child is None:
            self._early[message["exit"]] = message
        else:
            self._ended(child, message)

    def _lost(self) -> None:
        """The parent ended, and its children with it."""
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
