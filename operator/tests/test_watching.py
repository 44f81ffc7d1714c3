from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage_operator import watching as module
from moorage_operator.errors import NotFound
from moorage_operator.metrics import Metrics
from moorage_operator.resource import KIND
from moorage_operator.store import Store
from moorage_operator.watching import Watching

from .schema import defaulted, minimal


class Lists:
    """What the API server would list."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[str] = []

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[dict[str, Any]]:
        self.asked.append(kind)
        if kind == "ServiceMonitor":
            raise NotFound("no such kind", status=404)
        return [body for body in self.bodies if body["kind"] == kind]


class Woken:
    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []

    def add(self, key: tuple[str, str], delay: float = 0) -> None:
        self.keys.append(key)


def owner(**spec: Any) -> dict[str, Any]:
    body = defaulted(minimal(**spec))
    body["metadata"] |= {"uid": "owner", "resourceVersion": "1"}
    return body


def child(kind: str = "Service", name: str = "chat", version: int = 1, owned: bool = True) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "realtime", "uid": f"{kind}-{name}"}
    metadata["resourceVersion"] = str(version)
    if owned:
        metadata["ownerReferences"] = [{"uid": "owner", "controller": True}]
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


@pytest.fixture
def parts() -> tuple[Watching, Store, Woken, Lists]:
    store, woken, lists = Store(), Woken(), Lists()
    return Watching(lists, store, woken, Metrics()), store, woken, lists  # type: ignore[arg-type]


async def test_a_child_wakes_its_owner(parts: tuple[Watching, Store, Woken, Lists]) -> None:
    watching, _, woken, _ = parts
    watching.told(KIND, "ADDED", owner())
    woken.keys.clear()
    watching.told("Service", "MODIFIED", child(version=2))
    watching.told("Service", "DELETED", child(version=3))
    watching.told("Service", "MODIFIED", child(name="stranger", owned=False))
    assert woken.keys == [("realtime", "chat")] * 2


async def test_an_old_state_wakes_nobody(parts: tuple[Watching, Store, Woken, Lists]) -> None:
    watching, _, woken, _ = parts
    watching.told(KIND, "ADDED", owner())
    watching.told("Service", "MODIFIED", child(version=5))
    woken.keys.clear()
    watching.told("Service", "MODIFIED", child(version=4))
    assert woken.keys == []


async def test_a_pod_wakes_by_its_label(parts: tuple[Watching, Store, Woken, Lists]) -> None:
    watching, _, woken, _ = parts
    watching.told(KIND, "ADDED", owner())
    woken.keys.clear()
    pod = child("Pod", "chat-1", owned=False)
    pod["metadata"]["labels"] = {"app.kubernetes.io/instance": "chat"}
    watching.told("Pod", "MODIFIED", pod)
    assert woken.keys == [("realtime", "chat")]


async def test_only_secrets_that_are_named_wake(parts: tuple[Watching, Store, Woken, Lists]) -> None:
    watching, _, woken, _ = parts
    watching.told(KIND, "ADDED", owner(secretKeyRef={"name": "mine", "key": "k"}))
    woken.keys.clear()
    watching.told("Secret", "MODIFIED", child("Secret", "other", owned=False))
    assert woken.keys == []
    watching.told("Secret", "MODIFIED", child("Secret", "mine", owned=False))
    assert woken.keys == [("realtime", "chat")]
    changed = owner()
    changed["metadata"]["resourceVersion"] = "2"
    watching.told(KIND, "MODIFIED", changed)
    woken.keys.clear()
    watching.told("Secret", "MODIFIED", child("Secret", "mine", version=2, owned=False))
    assert woken.keys == []


async def test_what_was_deleted_in_a_gap_is_found(
    parts: tuple[Watching, Store, Woken, Lists], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GAP_SECONDS", 0.01)
    watching, store, woken, lists = parts
    lists.bodies = [owner(), child(), child("ConfigMap", "chat-redis")]
    await watching.prime()
    assert store.get("Service", "realtime", "chat") is not None
    woken.keys.clear()
    lists.bodies = [owner(), child("ConfigMap", "chat-redis")]
    watching.told("ConfigMap", None, child("ConfigMap", "chat-redis"))
    async with asyncio.timeout(20):
        while store.get("Service", "realtime", "chat") is not None:
            await asyncio.sleep(0.01)
    assert ("realtime", "chat") in woken.keys


async def test_what_was_deleted_before_the_last_watch_was_back_is_found(
    parts: tuple[Watching, Store, Woken, Lists], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GAP_SECONDS", 0.01)
    monkeypatch.setattr(module, "LATE_GAP_SECONDS", 2.0)
    watching, store, woken, lists = parts
    lists.bodies = [owner(), child(), child("ConfigMap", "chat-redis")]
    await watching.prime()
    lists.asked.clear()
    watching.told("ConfigMap", None, child("ConfigMap", "chat-redis"))
    async with asyncio.timeout(20):
        while lists.asked.count(KIND) < 1:
            await asyncio.sleep(0.01)
        assert store.get("Service", "realtime", "chat") is not None
        lists.bodies = [owner(), child("ConfigMap", "chat-redis")]
        while store.get("Service", "realtime", "chat") is not None:
            await asyncio.sleep(0.01)
    assert ("realtime", "chat") in woken.keys
    async with asyncio.timeout(20):
        while watching._late is not None:
            await asyncio.sleep(0.01)
    assert lists.asked.count(KIND) == 2  # and no more
