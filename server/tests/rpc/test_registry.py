"""The registry as a value: who is newest, what dies with a replica, and that all replicas agree in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.rpc.registry import Entry, Registry, method_of, rpc_room

ROOM = rpc_room("acc", "m")


def pair() -> tuple[Registry, Registry]:
    a, b = Registry("a"), Registry("b")
    a.tell = lambda item: (b.apply("a", [item]), 0)[1]
    b.tell = lambda item: (a.apply("b", [item]), 0)[1]
    return a, b


def sid_of(registry: Registry, room: str = ROOM) -> str | None:
    entry = registry.resolve(room)
    return entry.sid if entry else None


def test_room_names_keep_the_method_whole() -> None:
    assert rpc_room("acc", "machine:1:run") == "rpc:acc:machine:1:run"
    assert method_of("rpc:acc:machine:1:run") == "machine:1:run"


def test_newest_serves_on_every_replica() -> None:
    a, b = pair()
    a.join(ROOM, "s1")
    b.join(ROOM, "s2")
    assert sid_of(a) == sid_of(b) == "s2"
    a.join(ROOM, "s1")
    assert sid_of(a) == sid_of(b) == "s1"


def test_ties_go_to_the_larger_replica_id() -> None:
    registry = Registry("a")
    registry.apply("b", [["+", ROOM, "sb", 1, False]])
    registry.apply("c", [["+", ROOM, "sc", 1, False]])
    assert sid_of(registry) == "sc"


def test_older_local_entry_is_superseded_once() -> None:
    superseded: list[Entry] = []
    registry = Registry("a")
    registry.on_superseded = lambda entry: (superseded.append(entry), registry.leave(entry.room, entry.sid))[
        0
    ]
    registry.join(ROOM, "old")
    registry.apply("b", [["+", ROOM, "new", 5, False]])
    registry.apply("b", [["+", ROOM, "new", 6, False]])
    assert [e.sid for e in superseded] == ["old"]


def test_dropping_a_replica_uncovers_the_rest() -> None:
    a, b = pair()
    a.join(ROOM, "s1")
    b.join(ROOM, "s2")
    a.drop("b")
    assert sid_of(a) == "s1"
    assert len(a) == 1


def test_watchers_hear_new_registrations_only() -> None:
    heard: list[str] = []
    registry = Registry("a")
    callback = lambda: heard.append("x")  # noqa: E731
    registry.watch(ROOM, callback)
    registry.join(ROOM, "s")
    registry.leave(ROOM, "s")
    registry.unwatch(ROOM, callback)
    registry.join(ROOM, "s")
    assert heard == ["x"]


def test_listeners_are_told_at_the_first_and_the_last_only() -> None:
    told: list[Any] = []
    registry = Registry("a")
    registry.tell = lambda item: (told.append(item), 0)[1]
    for change in (1, 1, -1, -1):
        registry.listen("acc", change)
    assert told == [["u", "acc", True], ["u", "acc", False]]
    registry.apply("b", [["u", "other", True]])
    assert registry.listens("other")
    registry.drop("b")
    assert not registry.listens("other")


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["join", "leave", "listen", "unlisten", "deaf"]),
        st.sampled_from(["r1", "r2"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(ACTIONS)
def test_replicas_agree_after_a_snapshot_whatever_was_lost(actions: list[tuple[str, str, str, int]]) -> None:
    """Tells may be lost (a deaf replica); a snapshot of everybody makes all agree."""
    registries = {name: Registry(name) for name in "abc"}
    deaf: set[str] = set()

    def tell_from(name: str) -> Any:
        def tell(item: list[Any]) -> int:
            for other, registry in registries.items():
                if other != name and other not in deaf:
                    registry.apply(name, [item])
            return 0

        return tell

    for name, registry in registries.items():
        registry.tell = tell_from(name)
        registry.on_superseded = lambda entry, r=registry: r.leave(entry.room, entry.sid)  # type: ignore[misc]
    listening: dict[tuple[str, str], int] = {}
    for name, action, room, number in actions:
        registry = registries[name]
        sid = f"{name}{number}"
        if action == "join":
            registry.join(room, sid)
        elif action == "leave":
            registry.leave(room, sid)
        elif action == "deaf":
            deaf ^= {name}
        elif action == "listen" or listening.get((name, room), 0) > 0:
            change = 1 if action == "listen" else -1
            listening[(name, room)] = listening.get((name, room), 0) + change
            registry.listen(room, change)
    deaf.clear()
    for _ in range(2):  # superseding leaves once more
        for name, registry in registries.items():
            for other, target in registries.items():
                if other != name:
                    target.replace(name, registry.snapshot())
    for room in ("r1", "r2"):
        assert len({registry.resolve(room) for registry in registries.values()}) == 1
        assert len({registry.listens(room) for registry in registries.values()}) == 1
    assert len({len(registry) for registry in registries.values()}) == 1


def test_what_is_told_again_wakes_nobody_and_is_counted_once() -> None:
    a, b = pair()
    woken: list[str] = []
    b.watch(ROOM, lambda: woken.append("b"))
    a.join(ROOM, "s1")
    b.replace("a", a.snapshot())
    assert woken == ["b"]
    assert (len(a), len(b)) == (1, 1)
    b.drop("a")
    assert (len(a), len(b)) == (1, 0)
    b.replace("a", a.snapshot())
    assert woken == ["b", "b"]
