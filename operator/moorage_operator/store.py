"""What the watches told last: children, pods and references of all objects, in memory, so that a pass reads nothing.

Holds no data of Secrets and ConfigMaps, only which version of them is there.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Body = dict[str, Any]
Key = tuple[str, str, str]
"""(kind, namespace, name)"""

REFERENCED = ("Secret", "ConfigMap")


def key_of(body: Body) -> Key:
    metadata = body["metadata"]
    return body["kind"], metadata.get("namespace", ""), metadata["name"]


def owner_of(body: Body) -> str | None:
    """uid of the controlling owner."""
    for owner in body["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            uid: str = owner["uid"]
            return uid
    return None


def version_of(body: Body) -> int:
    """resourceVersion as a number. Comparable for one object (documented since Kubernetes 1.35, true before)."""
    text = str(body["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


def slim(body: Body) -> Body:
    """Without what nobody here reads: managed fields, and the contents of Secrets and ConfigMaps."""
    kept = dict(body)
    kept["metadata"] = {k: v for k, v in body["metadata"].items() if k != "managedFields"}
    if body.get("kind") in REFERENCED:
        for part in ("data", "stringData", "binaryData"):
            kept.pop(part, None)
        annotations = kept["metadata"].get("annotations") or {}
        kept["metadata"]["annotations"] = {
            k: v for k, v in annotations.items() if k != "kubectl.kubernetes.io/last-applied-configuration"
        }
    return kept


def content(body: Body) -> str:
    """Digest of what somebody could have changed by hand: everything but status and bookkeeping."""
    if body["kind"] in REFERENCED:
        return f"{body['metadata'].get('uid')}/{version_of(body)}"
    metadata = body["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop("deployment.kubernetes.io/revision", None)
    rest = {k: v for k, v in body.items() if k not in ("status", "metadata")}
    own = {k: metadata.get(k) for k in ("uid", "labels", "ownerReferences", "finalizers")}
    text = json.dumps([own, annotations, rest], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """Objects by key and by owner."""

    def __init__(self) -> None:
        self._objects: dict[Key, Body] = {}
        self._by_owner: dict[str, set[Key]] = defaultdict(set)
        self._pods: dict[tuple[str, str], set[Key]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, body: Body) -> bool:
        """Take a newer state; False: it is older than what is known (a watch lags behind our own write)."""
        key = key_of(body)
        known = self._objects.get(key)
        if known is not None:
            same = known["metadata"].get("uid") == body["metadata"].get("uid")
            if same and version_of(body) < version_of(known):
                return False
            self._forget(key, known)
        kept = slim(body)
        self._objects[key] = kept
        if owner := owner_of(kept):
            self._by_owner[owner].add(key)
        if key[0] == "Pod":
            self._pods[key[1], instance_of(kept)].add(key)
        return True

    def drop(self, body: Body) -> None:
        """It was deleted; a namesake made since stays."""
        key = key_of(body)
        known = self._objects.get(key)
        if known is not None and known["metadata"].get("uid") == body["metadata"].get("uid"):
            self._forget(key, known)
            del self._objects[key]

    def _forget(self, key: Key, known: Body) -> None:
        if owner := owner_of(known):
            self._by_owner[owner].discard(key)
            if not self._by_owner[owner]:
                del self._by_owner[owner]
        if key[0] == "Pod":
            self._pods[key[1], instance_of(known)].discard(key)

    def get(self, kind: str, namespace: str, name: str) -> Body | None:
        return self._objects.get((kind, namespace, name))

    def owned(self, uid: str) -> list[Body]:
        """All children of an owner, without its pods (those belong to ReplicaSets)."""
        return [self._objects[key] for key in sorted(self._by_owner.get(uid, ()))]

    def pods(self, namespace: str, instance: str) -> list[Body]:
        return [self._objects[key] for key in sorted(self._pods.get((namespace, instance), ()))]

    def all(self, kind: str) -> list[Body]:
        return [body for key, body in self._objects.items() if key[0] == kind]

    def replace(self, kind: str, bodies: Iterable[Body], namespace: str | None = None) -> list[Body]:
        """After a list: what is not in it is gone. Returns what was dropped or differs."""
        fresh = {key_of(body): body for body in bodies}
        changed = []
        for key, known in list(self._objects.items()):
            if key[0] == kind and namespace in (None, key[1]) and key not in fresh:
                self._forget(key, known)
                del self._objects[key]
                changed.append(known)
        for key, body in fresh.items():
            before = self._objects.get(key)
            if self.put(body) and (before is None or version_of(before) != version_of(body)):
                changed.append(body)
        return changed


def instance_of(body: Body) -> str:
    """Name of the object that a labelled child or pod belongs to."""
    labels = body["metadata"].get("labels") or {}
    return str(labels.get("app.kubernetes.io/instance", ""))
