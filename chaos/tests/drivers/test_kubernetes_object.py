"""What a setup makes of a RealtimeServer's spec, and that all of it can be put back."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.drivers.base import Setup
from moorage_chaos.drivers.kubernetes_object import CHANGED, is_settled, wanted_spec

SPEC: dict[str, Any] = {
    "image": "theirs:1",
    "replicas": 4,
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "drain": {"preStopSeconds": 5, "windowMs": 20000},
    "rpc": {"reconnectGraceMs": 15000},
    "worker": {"replicas": 0},
    "redis": {"mode": "Managed"},
    "service": {"type": "NodePort"},
}


def test_settings_of_the_operator_become_fields_and_others_environment() -> None:
    setup = Setup(
        replicas=3, workers=2, env={"MOORAGE_DRAIN_MS": "4000", "MOORAGE_STREAM_MAXLEN": "9", "A": "2"}
    )
    full = wanted_spec(SPEC, setup, image="mine:2", env={"C": "3"}, state={"name": "s", "key": "url"})
    assert full["drain"] == {"preStopSeconds": 5, "windowMs": 4000}
    assert (full["replicas"], full["image"], full["worker"]) == (3, "mine:2", {"replicas": 2})
    names = {entry["name"]: entry for entry in full["env"]}
    assert names["A"]["value"] == "2"
    assert names["B"]["valueFrom"]
    assert names["MOORAGE_STREAM_MAXLEN"]["value"] == "9"
    assert "MOORAGE_DRAIN_MS" not in names
    assert full["redis"] == {"mode": "Managed", "stateUrlSecretKeyRef": {"name": "s", "key": "url"}}
    assert "service" not in full


@given(
    st.integers(0, 9),
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(["MOORAGE_DRAIN_MS", "X", "A"]), st.integers(0, 9).map(str)),
)
def test_a_setup_changes_only_the_fields_that_are_put_back(
    replicas: int, workers: int, env: dict[str, str]
) -> None:
    before = {**SPEC}
    full = wanted_spec(SPEC, Setup(replicas=replicas, workers=workers, env=env))
    assert set(full) == set(CHANGED)
    assert before == SPEC, "the spec that was found is left alone"
    again = wanted_spec({**SPEC, **full}, Setup(replicas=4, workers=0))
    assert again["replicas"] == 4


def test_settled_is_ready_now_and_still() -> None:
    def body(ready: str, progressing: str, observed: int = 2) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": ready}, {"type": "Progressing", "status": progressing}]
        return {
            "metadata": {"generation": 2},
            "status": {"observedGeneration": observed, "conditions": conditions},
        }

    assert is_settled(body("True", "False"))
    assert not is_settled(body("True", "True"))
    assert not is_settled(body("False", "False"))
    assert not is_settled(body("True", "False", observed=1))
    assert not is_settled({"metadata": {"generation": 1}})
