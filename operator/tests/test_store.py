from __future__ import annotations

from typing import Any

from moorage_operator.store import Store, content, slim


def body(
    kind: str = "Deployment", name: str = "chat", version: int = 1, uid: str = "u", **rest: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "realtime", "uid": uid, "resourceVersion": str(version)}
    metadata |= rest.pop("metadata", {})
    return {"kind": kind, "apiVersion": "apps/v1", "metadata": metadata, **rest}


def owned(version: int = 1, uid: str = "u", owner: str = "o") -> dict[str, Any]:
    return body(version=version, uid=uid, metadata={"ownerReferences": [{"uid": owner, "controller": True}]})


def test_an_older_state_is_not_taken() -> None:
    store = Store()
    assert store.put(body(version=5))
    assert not store.put(body(version=4))
    assert store.put(body(version=5))


def test_a_namesake_made_anew_is_taken_whatever_its_version() -> None:
    store = Store()
    store.put(body(version=5, uid="old"))
    assert store.put(body(version=3, uid="new"))
    store.drop(body(version=9, uid="old"))
    assert store.get("Deployment", "realtime", "chat") is not None


def test_children_are_found_by_owner_until_they_are_gone() -> None:
    store = Store()
    store.put(owned())
    assert len(store.owned("o")) == 1
    store.put(owned(2, owner="other"))
    assert store.owned("o") == []
    store.drop(owned(2))
    assert store.owned("other") == []


def test_contents_of_secrets_are_not_kept() -> None:
    secret = body("Secret", data={"k": "c2VjcmV0"}, metadata={"managedFields": [1]})
    assert "c2VjcmV0" not in str(slim(secret))
    assert "managedFields" not in slim(secret)["metadata"]


def test_only_what_can_be_edited_counts_as_content() -> None:
    first = body(spec={"replicas": 1}, status={"replicas": 0})
    assert content(first) == content(body(version=9, spec={"replicas": 1}, status={"replicas": 1}))
    revision = {"annotations": {"deployment.kubernetes.io/revision": "2"}}
    assert content(first) == content(body(spec={"replicas": 1}, metadata=revision))
    assert content(first) != content(body(spec={"replicas": 2}))
    assert content(first) != content(body(spec={"replicas": 1}, metadata={"labels": {"a": "b"}}))


def test_a_list_brings_what_no_watch_told() -> None:
    store = Store()
    store.put(body(name="gone"))
    store.put(body(name="same"))
    store.put(body(name="older", version=1))
    changed = store.replace(
        "Deployment", [body(name="same"), body(name="older", version=2), body(name="new")]
    )
    assert sorted(b["metadata"]["name"] for b in changed) == ["gone", "new", "older"]
    assert store.get("Deployment", "realtime", "gone") is None
