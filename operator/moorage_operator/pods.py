"""Questions to server pods themselves: how many connections, does Redis answer. Bounded; no answer is None."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from moorage_operator.desired.pod import METRICS_PORT, PORT

ASK_SECONDS = 1.5
"""[s] Bound of one question. It is on the way of a pass, so it is short."""


class Pods:
    """Asks pods by address. Outside the cluster's network nothing answers, and every answer is None."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def connections(self, address: str) -> int | None:
        """Open Socket.IO connections, from the pod's metrics."""
        text = await self._get(f"http://{host(address)}:{METRICS_PORT}/metrics")
        return None if text is None else total(text, "websocket_connections")

    async def deletion_costs(self, addresses: Mapping[str, str]) -> dict[str, int]:
        """pod → what its deletion costs: its connections. One that does not answer in time is unknown, not empty, and
        as dear as the fullest (if it is not ready, it goes first whatever it costs). Empty if none answered."""
        answers = await asyncio.gather(*(self.connections(address) for address in addresses.values()))
        most = max((n for n in answers if n is not None), default=None)
        if most is None:
            return {}
        return {pod: most if n is None else n for pod, n in zip(addresses, answers, strict=True)}

    async def redis(self, address: str) -> bool | None:
        """What ``/ready`` says of Redis."""
        text = await self._get(f"http://{host(address)}:{PORT}/ready", json=True)
        return None if not isinstance(text, dict) else reported(text)

    async def _get(self, url: str, *, json: bool = False) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
            async with self._session.get(url, timeout=timeout) as answer:
                return await answer.json(content_type=None) if json else await answer.text()
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError):
            return None


def host(address: str) -> str:
    """Address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address


def total(text: str, name: str) -> int:
    """Sum of a metric over its labels in the Prometheus text format."""
    found = 0.0
    for line in text.splitlines():
        if line.startswith((f"{name} ", f"{name}{{")):
            try:
                found += float(line.rsplit(" ", 1)[1])
            except ValueError:
                continue
    return int(found)


def reported(answer: dict[str, Any]) -> bool | None:
    """``checks.redis`` of ``/ready``: "ok" or true; None when the server does not say."""
    value = (answer.get("checks") or {}).get("redis")
    return None if value is None else value in ("ok", True)
