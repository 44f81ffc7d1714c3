"""The command `moorage` as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

STARTED_S = 50.0
"""A process of ours is there within a second; the rest is for a busy machine."""


@asynccontextmanager
async def spawned(
    command: str, env: dict[str, str], folder: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """``moorage <command>`` with ``env`` and nothing else of ours, its output to be read; killed if it is left."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage.cli", command,
        env={"PATH": os.environ["PATH"], **env}, stdout=-1, stderr=-2, cwd=folder,
    )  # fmt: skip
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def listening(process: asyncio.subprocess.Process, http: httpx.AsyncClient, url: str) -> httpx.Response:
    """What ``url`` answers as soon as ``process`` listens there."""
    async with asyncio.timeout(STARTED_S):
        while True:
            try:
                return await http.get(url)
            except (httpx.ConnectError, httpx.ReadError, httpx.TimeoutException):
                assert process.returncode is None
                await asyncio.sleep(0.02)
