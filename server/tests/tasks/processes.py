"""`moorage worker` as a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from ..processes import listening, spawned
from ..valkey import free_port
from .world import SECRET


@asynccontextmanager
async def process(url: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker that works."""
    at = free_port()
    ours = {
        "REDIS_URL": url, "SECRET_KEY": SECRET, "METRICS_PORT": str(at), "MOORAGE_HOST": "127.0.0.1",
        "MOORAGE_DRAIN_MS": "300", "MOORAGE_TASK_HEARTBEAT_MS": "50", "MOORAGE_TASK_TAKEOVER_MS": "400",
    }  # fmt: skip
    async with (
        spawned("worker", ours | env) as started,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{at}") as http,
    ):
        metrics = await listening(started, http, "/metrics")
        assert "event_log_appends_total" in metrics.text
        assert (await http.get("/health")).json() == {"status": "ok"}
        assert (await http.get("/other")).status_code == 404
        yield started
