"""Rows `redis-toggle`, `drift`, `scale`, and what an update costs."""

from __future__ import annotations

import json
import time
from typing import Any

from .world import SERVER, One, Pods, client, read, standin_connections

REPAIRED_SECONDS = 5.0
"""[s] The promise of row `drift`."""


def test_redis_off_and_on_again_keeps_the_order_and_rolls_once_each(one: One) -> None:
    one.apply(image=SERVER, service={"type": "NodePort"})
    one.ready()
    url = one.cluster.address(one.there("service")["spec"]["ports"][0]["nodePort"])
    pod = one.pods()[0]["metadata"]["name"]
    token = one.cluster.kubectl("exec", pod, "--", "moorage", "token", "--account", "alice").stdout.strip()
    password = one.there("secret", "-redis-password")["data"]
    redis = one.there("statefulset", "-redis")["metadata"]["uid"]
    with client("load.py", url, token) as load, Pods(one) as pods:
        assert read(load) == "calling"
        before = one.revision()
        one.patch(redis={"mode": "Disabled"})
        body = one.ready()
        assert (body["status"]["mode"], body["status"]["readyReplicas"]) == ("SingleReplica", 1)
        assert one.condition("Available")["reason"] == "SingleReplicaWithoutRedis"
        assert one.revision() == before + 1
        assert one.child("statefulset", "-redis") is None
        assert one.child("pdb") is None
        one.patch(redis={"mode": "Managed"})
        body = one.ready()
        assert (body["status"]["mode"], body["status"]["readyReplicas"]) == ("Clustered", 3)
        assert one.revision() == before + 2
        load.terminate()
        told = json.loads(read(load))
    pods.check_no_islands()
    assert told["open"] == 0, told
    assert sum(told["ends"].values()) == told["began"], f"calls that nobody accounts for: {told}"
    assert told["ends"]["ok"] > 50, told
    assert "wrong" not in told["ends"], told
    assert one.there("secret", "-redis-password")["data"] == password
    assert one.there("statefulset", "-redis")["metadata"]["uid"] != redis
    assert not one.events("RedisRestarting")
    seen = {
        reason
        for reason in ("ScalingDown", "RollingOffRedis", "RollingOntoRedis", "ScalingUp")
        if one.events(reason)
    }
    assert seen == {"ScalingDown", "RollingOffRedis", "RollingOntoRedis", "ScalingUp"}


def test_to_an_external_redis_and_back(one: One) -> None:
    one.apply(replicas=2)
    one.ready()
    url, secret = "redis://elsewhere.example:6379/0", f"{one.name}-url"
    reference = {"urlSecretKeyRef": {"name": secret, "key": "url"}}
    with Pods(one) as pods:
        one.patch(redis={"mode": "External", "external": reference})
        one.told("Degraded", "SecretNotFound")
        assert len(one.pods()) == 2, "a Redis that is not there takes no replica away"
        one.cluster.kubectl("create", "secret", "generic", secret, f"--from-literal=url={url}")
        body = one.ready()
        assert body["status"]["redis"] == {"mode": "External", "ready": True}
        assert one.child("statefulset", "-redis") is None
        revision = one.revision()
        one.cluster.kubectl("patch", "secret", secret, "-p", json.dumps({"stringData": {"other": "x"}}))
        one.patch(redis={"mode": "Managed", "external": None})
        one.ready()
        assert one.revision() == revision + 1
    pods.check_no_islands()


def test_a_change_of_a_referenced_secret_rolls_once_and_another_key_not_at_all(one: One) -> None:
    secret = f"{one.name}-extra"
    one.cluster.kubectl("create", "secret", "generic", secret, "--from-literal=k=1")
    source = {"secretKeyRef": {"name": secret, "key": "k"}}
    one.apply(replicas=2, env=[{"name": "EXTRA", "valueFrom": source}])
    one.ready()
    with Pods(one) as pods:
        before = one.revision()
        one.cluster.kubectl("patch", "secret", secret, "-p", json.dumps({"stringData": {"other": "x"}}))
        one.cluster.kubectl("patch", "secret", secret, "-p", json.dumps({"stringData": {"k": "2"}}))
        one.rolled(before)
        assert one.revision() == before + 1
    assert min(len(backends) for _, backends in pods.serving[3:]) >= 2, "a roll may not take a replica away"


def test_a_generated_secret_that_is_deleted_is_made_anew_with_one_roll(one: One) -> None:
    one.apply(replicas=1, redis={"mode": "Disabled"})
    one.ready()
    before, data = one.revision(), one.there("secret", "-secret-key")["data"]
    one.cluster.kubectl("delete", "secret", f"{one.name}-secret-key")
    one.rolled(before)
    assert one.revision() == before + 1
    assert one.there("secret", "-secret-key")["data"] != data
    assert one.events("SecretRegenerated")[0]["type"] == "Warning"


def test_a_new_password_announces_the_restart_of_redis(one: One) -> None:
    one.apply(image=SERVER, replicas=1)
    one.ready()
    before = one.revision()
    new = {"stringData": {"password": 'p@ss "w:/rd\\'}}
    one.cluster.kubectl("patch", "secret", f"{one.name}-redis-password", "-p", json.dumps(new))
    one.cluster.until("announced", lambda: one.events("RedisRestarting"))
    one.rolled(before)
    assert one.revision() == before + 1
    assert "PONG" in one.cluster.kubectl("exec", f"{one.name}-redis-0", "--", "redis-cli", "ping").stdout


def test_drift_is_repaired_once_and_additions_stay(one: One) -> None:
    one.apply(replicas=2)
    one.ready()

    def repaired(what: str, good: Any) -> None:
        one.cluster.until(f"{what} repaired", good, REPAIRED_SECONDS)

    def patch(kind: str, patch: dict[str, Any], suffix: str = "") -> None:
        name = one.name + suffix
        one.cluster.kubectl("patch", kind, name, "--type=strategic", "-p", json.dumps(patch))

    def selector(extra: str) -> bool:
        return extra in one.there("service")["spec"]["selector"]

    patch("service", {"spec": {"selector": {"extra": "label"}}})
    repaired("an added selector label", lambda: not selector("extra"))
    patch("service", {"spec": {"ports": [{"port": 3000, "targetPort": 1}]}})
    repaired("a port", lambda: one.there("service")["spec"]["ports"][0]["targetPort"] == "http")
    env = [{"name": "STATE_URL", "value": None, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    patch("deployment", {"spec": {"template": {"spec": {"containers": [{"name": "server", "env": env}]}}}})

    def state_url() -> dict[str, Any]:
        container = one.there("deployment")["spec"]["template"]["spec"]["containers"][0]
        return next(e for e in container["env"] if e["name"] == "STATE_URL")

    repaired("a reserved variable", lambda: "valueFrom" not in state_url())
    patch("deployment", {"spec": {"replicas": 7}})
    repaired("replicas", lambda: one.there("deployment")["spec"]["replicas"] == 2)
    for kind, suffix in (("pdb", ""), ("configmap", "-redis"), ("service", "-peers"), ("serviceaccount", "")):
        one.cluster.kubectl("delete", kind, one.name + suffix)
        repaired(f"deleted {kind}", lambda kind=kind, suffix=suffix: one.child(kind, suffix))
    one.cluster.kubectl("label", "service", one.name, "app.kubernetes.io/name-")
    label = "app.kubernetes.io/name"
    repaired("a label", lambda: one.there("service")["metadata"]["labels"].get(label) == "moorage")
    one.ready()
    one.cluster.kubectl("delete", "deployment", one.name)
    repaired("deleted deployment", lambda: one.child("deployment"))
    one.rolled_out()

    before = one.revision()
    one.cluster.kubectl("rollout", "restart", f"deployment/{one.name}")
    one.cluster.kubectl("rollout", "status", f"deployment/{one.name}", "--timeout=60s")
    one.ready()
    assert one.revision() == before + 1
    annotations = one.there("deployment")["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in annotations

    def versions() -> dict[str, str]:
        kinds = "deployments,services,statefulsets,configmaps,secrets,pdb,serviceaccounts,rts"
        found = [*one.cluster.items(kinds, *one.labels), one.body()]
        return {f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for o in found}

    def at_rest() -> bool:
        first = versions()
        time.sleep(3)  # rest is what is looked at: nothing may be written in it
        return versions() == first

    one.cluster.until("at rest", at_rest)


def test_a_rollout_undone_by_hand_is_put_back(one: One) -> None:
    one.apply(replicas=1, redis={"mode": "Disabled"})
    one.ready()
    one.patch(redis={"mode": "Managed"}, replicas=3)
    one.ready()
    with Pods(one) as pods:
        one.cluster.kubectl("rollout", "undo", f"deployment/{one.name}")
        backend = "moorage.dev/backend"

        def back() -> bool:
            template = one.there("deployment")["spec"]["template"]
            return bool(template["metadata"]["annotations"][backend] == "managed")

        one.cluster.until("put back", back, REPAIRED_SECONDS)
        one.ready()
    assert all(backends.count("") <= 1 for _, backends in pods.serving)


def test_paused_writes_nothing(one: One) -> None:
    one.apply(replicas=1, redis={"mode": "Disabled"}, paused=True)
    one.told("Progressing", "Paused")
    assert not one.cluster.items("deployments,services,secrets", *one.labels)
    one.patch(paused=False)
    one.ready()
    one.patch(paused=True)
    one.told("Progressing", "Paused")
    one.cluster.kubectl("delete", "service", one.name)
    one.patch(paused=True, replicas=0)
    one.cluster.until(
        "seen", lambda: one.body()["status"]["observedGeneration"] == one.body()["metadata"]["generation"]
    )
    assert one.child("service") is None
    assert len(one.pods()) == 1


def test_scale_follows_and_takes_the_emptiest(one: One) -> None:
    # Pods that go answer for so long: the operator asks each for its connections, and the test looks at the status.
    one.apply(replicas=2, drain={"preStopSeconds": 15})
    one.ready()
    one.cluster.kubectl("scale", "rts", one.name, "--replicas=4")
    body = one.ready()
    assert body["status"]["replicas"] == 4
    scale = json.loads(
        one.cluster.kubectl("get", "rts", one.name, "--subresource=scale", "-o", "json").stdout
    )
    assert scale["status"] == {"replicas": 4, "selector": body["status"]["selector"]}
    before = one.connections()
    one.cluster.kubectl("scale", "rts", one.name, "--replicas=2")
    draining = one.cluster.until("draining told", lambda: one.body()["status"]["draining"])
    for entry in draining:
        assert entry["connections"] == standin_connections(entry["pod"])
        assert entry["since"].endswith("Z")
    one.ready()
    assert one.connections() == before[2:]
    one.cluster.kubectl("scale", "rts", one.name, "--replicas=1")
    one.ready()
    assert one.child("pdb") is None


def test_a_larger_claim_that_cannot_grow_is_told_with_the_remedy(one: One) -> None:
    one.apply(replicas=0)
    one.told("Ready", "ScaledToZero")
    one.patch(redis={"storage": {"size": "2Gi"}})
    found = one.told("ConfigurationWarning", "StorageNotExpandable")
    assert "by hand" in found["message"]
    assert one.condition("Ready")["status"] == "True"


def test_workers_come_and_go(one: One) -> None:
    one.apply(replicas=1, worker={"replicas": 2})
    one.ready()
    assert len(one.pods("worker")) == 2
    environment = one.there("deployment", "-worker")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert next(e for e in environment if e["name"] == "REDIS_URL")["valueFrom"]
    one.patch(worker={"replicas": 0})
    one.cluster.until("workers gone", lambda: one.child("deployment", "-worker") is None)
    one.ready()


def test_a_fight_is_given_up_and_told(one: One) -> None:
    """Somebody sets the same field again and again: no write storm, and a warning that names the child."""
    one.apply(replicas=0, redis={"mode": "Disabled"})
    one.told("Ready", "ScaledToZero")

    def contested() -> bool:
        patch = json.dumps({"spec": {"selector": {"app.kubernetes.io/name": "theirs"}}})
        one.cluster.kubectl("patch", "service", one.name, "-p", patch)
        return one.condition("ConfigurationWarning").get("reason") == "Contested"

    one.cluster.until("given up", contested)
    assert f"Service {one.name}" in one.condition("ConfigurationWarning")["message"]

    def repaired() -> bool:
        return bool(one.there("service")["spec"]["selector"]["app.kubernetes.io/name"] == "moorage")

    one.cluster.until("repaired after a while", repaired, 60)
    one.cluster.until("warning gone", lambda: not one.condition("ConfigurationWarning"), 40)
