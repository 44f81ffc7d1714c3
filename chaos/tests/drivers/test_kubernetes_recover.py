"""`recover` for clusters: each kind of record, and that what could not be undone is tried again the next time."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.drivers.kubernetes_recover import undo
from moorage_chaos.faults.journal import recover

from .api_server import ApiServer

OBJECT = "/apis/moorage.dev/v1alpha1/namespaces/n/realtimeservers/chat"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """In a thread: `recover` has an event loop of its own."""
    server, ready, stop = ApiServer(), threading.Event(), threading.Event()

    async def run() -> None:
        async with server.running():
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(5)
    yield server
    stop.set()
    thread.join(10)


@pytest.fixture
def record(server: ApiServer, tmp_path: Path) -> dict[str, Any]:
    return {"do": "kubernetes", "context": "", "kubeconfig": server.kubeconfig(tmp_path), "namespace": "n"}


def settled(generation: int) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Progressing", "status": "False"}]
    status = {"observedGeneration": generation, "conditions": conditions}
    return {"metadata": {"name": "chat", "generation": generation}, "status": status}


def test_the_object_gets_its_fields_back(server: ApiServer, record: dict[str, Any]) -> None:
    server.answers[OBJECT] = settled(3)
    assert "Ready" in undo({**record, "what": "spec", "path": OBJECT, "spec": {"replicas": 3, "env": None}})
    assert ("PATCH", OBJECT, {"spec": {"replicas": 3, "env": None}}) in server.asked


def test_the_operator_goes_on_with_redis(server: ApiServer, record: dict[str, Any]) -> None:
    server.answers[OBJECT] = settled(1)
    undo({**record, "what": "redis", "name": "chat"})
    assert ("PATCH", OBJECT, {"spec": {"paused": False}}) in server.asked


def test_objects_of_ours_are_removed(server: ApiServer, record: dict[str, Any]) -> None:
    undo({**record, "what": "delete", "path": "/api/v1/namespaces/n/services/chat-chaos-replica-1"})
    assert server.asked[-1][:2] == ("DELETE", "/api/v1/namespaces/n/services/chat-chaos-replica-1")


def test_a_node_takes_pods_again(server: ApiServer, record: dict[str, Any]) -> None:
    server.answers["/api/v1/nodes/n1"] = {}
    undo({**record, "what": "node", "name": "n1", "argv": []})
    assert ("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": None}}) in server.asked


def test_pods_are_healed_by_the_helper(server: ApiServer, record: dict[str, Any]) -> None:
    body = {"metadata": {"name": "h"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    server.answers["/api/v1/namespaces/moorage-chaos/pods"] = {"items": [body]}
    told = undo({**record, "what": "heal", "pods": ["no-such-pod"], "node": "n1"})
    assert "nothing was in force" in told


def test_a_cluster_that_is_away_is_tried_again(
    server: ApiServer, record: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    path = folder / "1.jsonl"
    dead = {"format": 1, "pid": os.getpid(), "start": 1}  # process 1 of a machine may have this start time
    rows = [dead, {"n": 1, **record, "what": "redis", "name": "chat"}]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    assert "could not undo" in recover(folder)[0]
    assert path.exists()
    server.answers[OBJECT] = settled(1)
    recover(folder)
    assert not path.exists()
