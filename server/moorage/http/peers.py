"""Asks the other replicas, by the headless Service, whether they reach Redis."""

from __future__ import annotations

import asyncio
import json
import socket
import time

ASK_TIMEOUT_S = 0.5
"""Bound of looking up and asking all, together: below the timeout of a readiness probe (1 s in Kubernetes)."""

CACHE_S = 1.0
"""Probes come each second or slower from one kubelet; more of them must not become more questions."""

PEERS_MAX = 32
"""Peers asked: one positive answer decides, so a part of a large Service is enough."""

ANSWER_MAX_BYTES = 65_536


class Peers:
    """``host`` is the headless Service's name, ``port`` the replicas' HTTP port."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._known: bool | None = None
        self._until = float("-inf")
        self._asking: asyncio.Task[bool | None] | None = None

    async def reach_redis(self) -> bool | None:
        """True: some peer reaches Redis. False: those that answered do not. None: nobody answered.

        At most :data:`ASK_TIMEOUT_S`; the answer is kept for :data:`CACHE_S`; never raises for the network.
        Our own address is among them and answers no, since only a replica without Redis asks.
        """
        if time.monotonic() < self._until:
            return self._known
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all(), name="peers")
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def _asked(self, task: asyncio.Task[bool | None]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self._known, self._until = task.result(), time.monotonic() + CACHE_S

    async def _ask_all(self) -> bool | None:
        asks: set[asyncio.Task[bool | None]] = set()
        answers: list[bool] = []
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                found = await asyncio.get_running_loop().getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM
                )
                addresses = sorted({str(entry[4][0]) for entry in found})[:PEERS_MAX]
                asks = {asyncio.create_task(self._ask(address)) for address in addresses}
                for answer in asyncio.as_completed(asks):
                    reached = await answer
                    if reached:
                        return True
                    if reached is not None:
                        answers.append(reached)
        except (OSError, TimeoutError):
            pass
        finally:
            for ask in asks:
                ask.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
        return False if answers else None

    async def _ask(self, address: str) -> bool | None:
        """Whether the replica at ``address`` reaches Redis; None: no usable answer."""
        writer = None
        try:
            reader, writer = await asyncio.open_connection(address, self._port)
            writer.write(
                f"GET /ready?peer=1 HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n\r\n".encode()
            )
            answer = await _read(reader)
            checks = json.loads(answer.partition(b"\r\n\r\n")[2])["checks"]
            return bool(checks["redis"] == "ok")
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        finally:
            if writer is not None:
                writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    parts, size = [], 0
    while (part := await reader.read(ANSWER_MAX_BYTES)) and size <= ANSWER_MAX_BYTES:
        parts.append(part)
        size += len(part)
    return b"".join(parts)
