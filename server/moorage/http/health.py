"""Probes: ``/health`` is liveness and asks nobody, ``/ready`` is readiness."""

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from moorage.http.context import HttpContext
from moorage.http.errors import answer

SERVICE = "moorage"


class Health(BaseModel):
    status: Literal["ok"]
    timestamp: int = Field(description="epoch milliseconds")
    service: Literal["moorage"]


class Ready(BaseModel):
    """`degraded`: Redis is out of reach, here or for everybody."""

    status: Literal["ok", "unavailable"]
    degraded: bool
    checks: dict[str, Any]


def router(context: HttpContext) -> APIRouter:
    """The routes of probes."""
    routes = APIRouter(tags=["probes"])

    @routes.get("/health", response_model=Health, summary="Liveness")
    async def health() -> Response:
        return answer({"status": "ok", "timestamp": int(time.time() * 1000), "service": SERVICE})

    @routes.get("/ready", response_model=Ready, responses={503: {"model": Ready}}, summary="Readiness")
    async def ready(
        peer: Annotated[
            str | None, Query(description="set by a replica that asks; others are not asked")
        ] = None,
    ) -> Response:
        verdict = await context.readiness.check(ask=peer is None)
        return answer(verdict.as_json(), 200 if verdict.ready else 503)

    return routes
