"""The privileged helper on each node, as the harness uses it: a session per node over ``exec``, requests as JSON lines.

Times of a node are translated to this machine's CLOCK_MONOTONIC by the answer with the shortest round trip of a few
(half of it is the uncertainty); on the test cluster both clocks are one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import STDERR, STDIN, STDOUT, Api, ApiError

NAMESPACE = "moorage-chaos"
SELECTOR = "app.kubernetes.io/name=moorage-chaos-node"
COMMAND = ("python3", "-m", "moorage_chaos.node")
ANSWER_BOUND_S = 12.0
"""Of one request: the longest, SIGKILL until the process is gone, is bounded at the helper by 5 s."""
PINGS = 8
HINT = "the node helper does not run; install it with --deploy, or by chaos/node/helper.yaml"


class Session:
    """One helper, entered. Broken once anything about it fails: its helper then undoes what it did."""

    def __init__(
        self, node: str, socket: aiohttp.ClientWebSocketResponse, on_exit: Callable[[str, int], None]
    ) -> None:
        self.node = node
        self.broken = ""
        self.offset_ns = 0
        """The node's clock minus ours."""
        self.uncertainty_ns = 0
        self._socket = socket
        self._on_exit = on_exit
        self._next = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def synchronize(self) -> None:
        """Compare clocks. Raises DriverError."""
        best = 0
        for _ in range(PINGS):
            before = time.monotonic_ns()
            answer = await self.request("ping")
            after = time.monotonic_ns()
            if not best or after - before < best:
                best = after - before
                self.offset_ns = answer["t"] - (before + after) // 2
        self.uncertainty_ns = best // 2
        if abs(self.offset_ns) <= self.uncertainty_ns:
            self.offset_ns = self.uncertainty_ns = 0  # one machine, one clock

    def here(self, t_ns: int) -> int:
        """A time of the node on our clock."""
        return t_ns - self.offset_ns

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Raises DriverError if the helper says no or nothing."""
        if self.broken:
            raise DriverError(f"the helper on {self.node} is gone: {self.broken}")
        self._next += 1
        number = self._next
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": number, "op": op, **fields}).encode() + b"\n"
        try:
            async with asyncio.timeout(ANSWER_BOUND_S):
                await self._socket.send_bytes(bytes([STDIN]) + line)
                answer: dict[str, Any] = await future
        except TimeoutError as error:
            raise DriverError(
                f"the helper on {self.node} did not answer {op} in {ANSWER_BOUND_S:g} s"
            ) from error
        except (OSError, aiohttp.ClientError) as error:
            self._break(str(error))
            raise DriverError(f"the helper on {self.node} is gone: {error}") from error
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise DriverError(f"{self.node}: {op}: {answer['error']}")
        return answer

    def _break(self, reason: str) -> None:
        self.broken = self.broken or reason or "the session ended"
        for future in self._waiting.values():
            if not future.done():
                future.set_result({"error": self.broken})

    async def _read(self) -> None:
        rest, complaint = b"", ""
        try:
            async for message in self._socket:
                if message.type != aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, data = message.data[0], message.data[1:]
                if channel == STDERR:
                    complaint = (complaint + data.decode(errors="replace"))[-500:]
                if channel != STDOUT:
                    continue
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._heard(json.loads(line))
        except (OSError, ValueError, aiohttp.ClientError) as error:
            complaint = complaint or repr(error)
        finally:
            self._break(complaint)

    def _heard(self, message: dict[str, Any]) -> None:
        if message.get("event") == "exit":
            self._on_exit(message["container"], self.here(message["t"]))
        future = self._waiting.get(message.get("id", 0))
        if future is not None and not future.done():
            future.set_result(message)

    async def close(self) -> None:
        await self._socket.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


class Nodes:
    """Sessions by node, opened when first needed and again after they broke."""

    def __init__(self, api: Api, on_exit: Callable[[str, int], None] = lambda container, t: None) -> None:
        self._api = api
        self._on_exit = on_exit
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def helpers(self) -> dict[str, str]:
        """Node -> name of its running helper pod."""
        pods = await self._api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", SELECTOR)
        return {
            pod["spec"]["nodeName"]: pod["metadata"]["name"]
            for pod in pods
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        }

    async def session(self, node: str) -> Session:
        """Raises DriverError if there is no helper on that node."""
        async with self._locks.setdefault(node, asyncio.Lock()):
            session = self._sessions.get(node)
            if session is not None and not session.broken:
                return session
            pod = (await self.helpers()).get(node)
            if pod is None:
                raise DriverError(f"node {node}: {HINT}")
            try:
                socket = await self._api.exec(NAMESPACE, pod, "helper", COMMAND)
            except ApiError as error:
                raise DriverError(f"the helper on {node} cannot be entered: {error}") from error
            session = self._sessions[node] = Session(node, socket, self._on_exit)
            await session.synchronize()
            return session

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
