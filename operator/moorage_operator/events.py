"""Kubernetes Events, on transitions only. Losing one must never fail a pass."""

from __future__ import annotations

import datetime
import hashlib
import logging

from moorage_operator.api import FIELD_MANAGER, Body
from moorage_operator.context import Context
from moorage_operator.errors import ApiError

log = logging.getLogger(__name__)


async def emit(context: Context, about: Body, kind: str, reason: str, message: str) -> None:
    """``kind``: Normal or Warning."""
    metadata = about["metadata"]
    moment = datetime.datetime.now(datetime.UTC)
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    unique = hashlib.sha256(f"{metadata['uid']}{reason}{moment.timestamp()}".encode()).hexdigest()[:10]
    log.info("%s/%s: %s %s: %s", metadata["namespace"], metadata["name"], kind, reason, message)
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{unique}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": kind,
        "reason": reason,
        "message": message[:1000],
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": context.instance,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    try:
        await context.api.create(body)
    except ApiError as error:
        log.warning("an Event was lost: %s", error)
