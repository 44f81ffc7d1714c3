"""Node processes of a mixed cluster: servers and clients in them, told what to do by lines of JSON."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

PACKAGES = Path(__file__).parents[3] / "chaos" / "peers" / "node"
BOUND_S = 20.0
"""Of one answer; starting Node on a busy machine takes a second or two."""


def require_node() -> None:
    """Skip without Node or its packages; under CI=true that is a failure."""
    if shutil.which("node") is None:
        reason = "Node.js is not installed"
    elif not (PACKAGES / "node_modules" / "@socket.io" / "redis-streams-adapter").is_dir():
        reason = "the Node packages are missing: make node"
    else:
        return
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class NodeError(Exception):
    """What an action threw in Node."""


class NodePeer:
    """One Node process. ``got[client]``: the events that a client received, as ``[name, *args]``."""

    def __init__(self) -> None:
        self.got: defaultdict[str, list[list[Any]]] = defaultdict(list)
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def start(self, url: str) -> NodePeer:
        self.process = await asyncio.create_subprocess_exec(
            "node",
            str(Path(__file__).with_name("peer.mjs")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "REDIS_URL": url, "PACKAGES": str(PACKAGES)},
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            told = json.loads(line, object_hook=_revive)
            if "client" in told:
                self.got[told["client"]].append(told["event"])
                continue
            answer = self._answers.pop(told["id"])
            if answer.done():
                continue
            if "error" in told:
                answer.set_exception(NodeError(told["error"]))
            else:
                answer.set_result(told["result"])

    async def do(self, what: str, **arguments: Any) -> Any:
        """Raises :class:`NodeError`; :class:`TimeoutError` after ``BOUND_S``."""
        assert self.process.stdin is not None
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": number, "do": what, **arguments}).encode() + b"\n")
        return await asyncio.wait_for(self._answers[number], BOUND_S)

    async def client(self, name: str, **arguments: Any) -> str:
        """A client in room ``all`` of its server; its sid."""
        return str(await self.do("client", name=name, **arguments))

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT, SIGKILL."""
        self.process.send_signal(number)

    async def stop(self) -> None:
        assert self.process.stdin is not None
        if self.process.returncode is None:
            self.signal(signal.SIGCONT)
            self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), BOUND_S)
        await self._reading
        self.process._transport.close()  # type: ignore[attr-defined]


def data(value: bytes) -> dict[str, str]:
    """Bytes as an argument of :meth:`NodePeer.do`."""
    return {"$bytes": base64.b64encode(value).decode()}


def _revive(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["$bytes"]) if value.keys() == {"$bytes"} else value
