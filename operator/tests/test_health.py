from __future__ import annotations

import aiohttp

from moorage_operator.health import STUCK_SECONDS, Health
from moorage_operator.metrics import Metrics


async def test_liveness_fails_when_work_waits_too_long_and_not_before() -> None:
    metrics = Metrics()
    health = Health(metrics)
    port = await health.start("127.0.0.1", 0)

    async def ask(path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()

    try:
        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (200, "standby\n")
        health.oldest = lambda: STUCK_SECONDS - 1
        health.started = True
        assert (await ask("/healthz"))[0] == 200
        assert await ask("/readyz") == (200, "leader\n")
        health.oldest = lambda: STUCK_SECONDS + 1
        status, text = await ask("/healthz")
        assert status == 503
        assert "stuck" in text
        metrics.request("GET", 200)
        assert 'moorage_operator_api_requests_total{code="200",verb="GET"} 1.0' in (await ask("/metrics"))[1]
    finally:
        await health.stop()
