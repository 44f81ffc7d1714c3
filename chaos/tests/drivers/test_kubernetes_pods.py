"""Places and pods: who is where as pods come, roll, die and restart, from events of the API server and of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.drivers.kubernetes_pods import Fleet, replica_id


def body(
    name: str,
    *,
    container: str = "",
    ready: bool = False,
    going: bool = False,
    ended: tuple[str, int] | None = None,
) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}} if container else {"waiting": {}}
    status: dict[str, Any] = {"name": "server", "state": state, "containerID": f"containerd://{container}"}
    if ended:
        terminated = {"containerID": f"containerd://{ended[0]}", "exitCode": ended[1], "reason": "Error"}
        status["state" if not container else "lastState"] = {"terminated": terminated}
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z"}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n1"},
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [status],
        },
    }


class Told:
    def __init__(self) -> None:
        self.rows: list[tuple[str, int, dict[str, Any]]] = []

    def __call__(self, op: str, t: int, value: dict[str, Any]) -> None:
        self.rows.append((op, t, value))

    def ops(self) -> list[str]:
        return [op for op, _, _ in self.rows]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def fleet(told: Told) -> Fleet:
    """Two places with a ready pod each."""
    fleet = Fleet("server", "replica", told)
    fleet.resize(2)
    for name in ("p1", "p2"):
        fleet.heard("ADDED", body(name, container=f"c-{name}", ready=True))
        fleet.introduced(fleet.pods[f"uid-{name}"], f"c-{name}", f"{name}-abc")
    told.rows.clear()
    return fleet


def where(fleet: Fleet) -> list[str]:
    return [place.pod.name if place.pod else "" for place in fleet.places]


def test_pods_take_places_in_the_order_they_were_made(fleet: Fleet) -> None:
    assert where(fleet) == ["p1", "p2"]
    assert [place.state for place in fleet.places] == ["ready", "ready"]
    assert fleet.place_of("p2-abc").link == "replica-2"


def test_a_kill_is_told_once_at_the_time_its_node_saw(fleet: Fleet, told: Told) -> None:
    fleet.pods["uid-p1"].asked = True
    fleet.exited("c-p1", 777)
    assert fleet.places[0].state == "dead"
    fleet.heard("MODIFIED", body("p1", container="c-p1", ready=True))
    assert fleet.places[0].state == "dead", "what the API server says is older"
    fleet.heard("MODIFIED", body("p1", going=True, ended=("c-p1", 137)))
    fleet.heard("MODIFIED", body("p1", going=True, ended=("c-p1", 137)))
    fleet.heard("DELETED", body("p1", going=True, ended=("c-p1", 137)))
    deaths = [(t, value) for op, t, value in told.rows if op == "death"]
    assert [t for t, _ in deaths] == [777]
    assert deaths[0][1]["code"] == 137
    assert deaths[0][1]["asked"] is True
    assert deaths[0][1]["link"] == "replica-1"


def test_what_a_setup_ends_was_asked_for_also_when_it_was_not_heard_of_before(told: Told) -> None:
    fleet = Fleet("server", "replica", told)
    fleet.ask(True)
    for name in ("old", "new"):
        fleet.heard("ADDED", body(name, container=f"c-{name}", ready=True))
    fleet.heard("MODIFIED", body("old", container="c-old", ready=True, going=True))
    fleet.ask(False)
    for name in ("old", "new"):
        fleet.heard("MODIFIED", body(name, going=True, ended=(f"c-{name}", 0)))
    asked = {value["pod"]: value["asked"] for op, _, value in told.rows if op == "death"}
    assert asked == {"old": True, "new": False}


def test_the_next_pod_takes_the_place_and_the_old_id_still_leads_to_it(fleet: Fleet) -> None:
    fleet.heard("MODIFIED", body("p1", going=True, ended=("c-p1", 137)))
    assert fleet.places[0].state == "dead"
    fleet.heard("ADDED", body("p3"))
    assert where(fleet) == ["p3", "p2"]
    assert fleet.places[0].state == "starting"
    assert fleet.places[0].generation == 2
    fleet.heard("MODIFIED", body("p3", container="c-p3", ready=True))
    assert fleet.places[0].state == "not-ready"
    fleet.introduced(fleet.pods["uid-p3"], "c-p3", "p3-def")
    assert fleet.places[0].state == "ready"
    assert fleet.place_of("p1-abc") is fleet.place_of("p3-def") is fleet.places[0]


def test_a_surge_waits_for_a_place(fleet: Fleet) -> None:
    fleet.heard("ADDED", body("p3", container="c-p3", ready=True))
    assert where(fleet) == ["p1", "p2"]
    fleet.heard("MODIFIED", body("p2", container="c-p2", ready=True, going=True))
    assert where(fleet) == ["p1", "p3"]


def test_a_container_that_restarts_in_its_pod_has_another_id(fleet: Fleet, told: Told) -> None:
    fleet.heard("MODIFIED", body("p1", container="c-new", ready=False, ended=("c-p1", 1)))
    assert fleet.places[0].state == "not-ready"
    assert [value["code"] for op, _, value in told.rows if op == "death"] == [1]
    fleet.introduced(fleet.pods["uid-p1"], "c-p1", "late")
    assert fleet.pods["uid-p1"].id == ""


def test_draining_is_told_when_a_pod_begins_to_go(fleet: Fleet, told: Told) -> None:
    fleet.heard("MODIFIED", body("p1", container="c-p1", ready=True, going=True))
    fleet.heard("MODIFIED", body("p1", container="c-p1", ready=False, going=True))
    assert told.ops() == ["draining"]


def test_it_is_calm_when_those_that_are_to_stay_are_there_and_the_others_do_not_run(fleet: Fleet) -> None:
    assert fleet.calm(2)
    assert not fleet.calm(1), "that one goes is not heard yet"
    fleet.heard("MODIFIED", body("p1", container="c-p1", ready=True, going=True))
    assert not fleet.calm(1), "it goes, and still runs"
    fleet.heard("MODIFIED", body("p1", going=True, ended=("c-p1", 0)))
    assert fleet.calm(1)


def test_what_a_list_lacks_is_gone(fleet: Fleet) -> None:
    fleet.heard("LISTED", {"items": [body("p2", container="c-p2", ready=True)]})
    assert [place.state for place in fleet.places] == ["dead", "ready"]


@given(
    st.lists(
        st.tuples(st.sampled_from("123456"), st.sampled_from(["run", "ready", "go", "gone"])), max_size=40
    )
)
def test_a_pod_never_has_two_places_and_a_place_keeps_a_live_pod(steps: list[tuple[str, str]]) -> None:
    fleet = Fleet("server", "replica", lambda op, t, value: None)
    fleet.resize(3)
    held: dict[str, str] = {}
    for number, step in steps:
        name = f"p{number}"
        if step == "gone":
            fleet.heard("DELETED", body(name, going=True, ended=(f"c-{name}", 0)))
        else:
            fleet.heard(
                "MODIFIED", body(name, container=f"c-{name}", ready=step == "ready", going=step == "go")
            )
        now = {place.link: place.pod.uid for place in fleet.places if place.pod is not None}
        assert len(set(now.values())) == len(now)
        for link, uid in held.items():
            assert now[link] == uid or fleet.pods[uid].going
        held = now


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "2026-11-30T09:00:00Z [info     ] serving             [moorage] port=3005 replica=chat-1-a1b2c3",
            "chat-1-a1b2c3",
        ),
        ('{"replica": "chat-1-a1b2c3", "event": "serving", "port": 3005}', "chat-1-a1b2c3"),
        ("ready replica=chat-1", ""),
        ("serving nobody", ""),
    ],
)
def test_a_server_introduces_itself(line: str, expected: str) -> None:
    assert replica_id(f"first line\n{line}\n") == expected
