"""`moorage worker` as a process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from ..valkey import free_port
from .world import SECRET

STARTED_S = 20.0
"""A process of ours is there within a second; the rest is for a busy machine."""


@asynccontextmanager
async def process(url: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker that works."""
    port = str(free_port())
    ours = {
        "REDIS_URL": url, "SECRET_KEY": SECRET, "METRICS_PORT": port, "MOORAGE_HOST": "127.0.0.1",
        "MOORAGE_DRAIN_MS": "300", "MOORAGE_TASK_HEARTBEAT_MS": "50", "MOORAGE_TASK_TAKEOVER_MS": "400",
    }  # fmt: skip
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage.cli", "worker",
        env={"PATH": os.environ["PATH"], **ours, **env}, stdout=-1, stderr=-2,
    )  # fmt: skip
    try:
        async with asyncio.timeout(STARTED_S), httpx.AsyncClient() as http:
            while True:
                try:
                    metrics = await http.get(f"http://127.0.0.1:{port}/metrics")
                    assert "event_log_appends_total" in metrics.text
                    assert (await http.get(f"http://127.0.0.1:{port}/health")).json() == {"status": "ok"}
                    assert (await http.get(f"http://127.0.0.1:{port}/other")).status_code == 404
                    break
                except httpx.ConnectError:
                    assert started.returncode is None
                    await asyncio.sleep(0.02)
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()
