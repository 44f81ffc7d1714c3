"""More ways into the Service for single clients, each a link of a front process beside the clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from moorage_chaos.front_control import FrontControl


class Doors:
    """Opened on demand; their links can be cut like those of the local driver, for they are the same."""

    def __init__(self, log: Path) -> None:
        self.links: FrontControl | None = None
        self.names: set[str] = set()
        self._log = log
        self._target = ("", 0)
        self._starting = asyncio.Lock()

    async def start(self, url: str) -> None:
        """Lead to ``url`` from now on; doors of before are closed."""
        await self.close()
        parts = urlsplit(url)
        self._target = (str(parts.hostname), parts.port or 80)

    async def open(self, name: str) -> str:
        """URL of one more door."""
        async with self._starting:
            if self.links is None:
                links = FrontControl()
                await links.start(self._log)
                self.links = links
        port = await self.links.link(name, self._target)
        self.names.add(name)
        return f"http://127.0.0.1:{port}"

    async def close(self) -> None:
        links, self.links = self.links, None
        self.names.clear()
        if links is not None:
            await links.stop()
