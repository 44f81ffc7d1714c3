"""LocalManager: rooms, targets, callbacks, and what a disconnect touches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.cluster.local import LocalManager
from moorage.cluster.packets import Encoded


class FakeSocket:
    def __init__(self) -> None:
        self.got: list[Any] = []
        self.behind = False

    def post(self, packet: Encoded) -> None:
        self.push(packet)

    def push(self, packet: Encoded) -> None:
        self.got.append(
            packet.text if packet.attachments else json.loads(packet.text[packet.text.index(b"[") :])
        )


class FakeServer:
    """As much of a SocketServer as the manager uses."""

    class packet_class:
        json = json

    def __init__(self) -> None:
        self.eio = self
        self.sockets: dict[str, FakeSocket] = {}
        self._ids = 0

    def generate_id(self) -> str:
        self._ids += 1
        return f"sid{self._ids}"


def manager() -> LocalManager:
    found = LocalManager()
    found.set_server(FakeServer())
    return found


async def add(local: LocalManager, eio_sid: str, namespace: str = "/") -> str:
    local.server.sockets[eio_sid] = FakeSocket()
    sid = await local.pre_connect(eio_sid, namespace)
    assert sid is not None
    await local.connect(sid, namespace)
    return sid


def got(local: LocalManager, sid: str, namespace: str = "/") -> list[Any]:
    eio_sid = local.eio_sid_from_sid(sid, namespace)
    return local.server.sockets[eio_sid].got  # type: ignore[no-any-return]


async def test_two_phases_of_connect() -> None:
    local = manager()
    local.server.sockets["e"] = FakeSocket()
    sid = await local.pre_connect("e", "/")
    assert sid is not None
    assert local.is_pre_connected(sid, "/")
    assert not local.is_connected(sid, "/")
    assert local.emit_local("all", [], []) == 0, "whoever is not let in yet must not hear broadcasts to all"
    assert local.join(sid, "room"), "a connect handler may enter rooms"
    assert local.emit_local("room", [], ["room"]) == 1
    assert await local.pre_connect("e", "/") is None, "a transport joins a namespace once"
    await local.connect(sid, "/")
    assert local.is_connected(sid, "/")
    assert local.sid_from_eio_sid("e", "/") == sid
    assert local.namespaces_of("e") == [("/", sid)]
    local.pre_disconnect(sid, "/")
    assert not local.is_connected(sid, "/")
    assert local.rooms_of(sid) == {"room"}, "rooms are there while the disconnect handler runs"
    assert not local.join(sid, "late")
    await local.disconnect(sid, "/")
    assert local.get_rooms(sid, "/") == []
    assert not local.get_namespaces()


async def test_forced_sid_is_not_given_twice() -> None:
    local = manager()
    assert local.basic_pre_connect("e1", "/", "old") == "old"
    assert local.basic_pre_connect("e2", "/", "old") is None
    assert local.basic_pre_connect("e2", "/") is not None


async def test_rooms_and_protection_of_sid_rooms() -> None:
    local = manager()
    a, b = await add(local, "ea"), await add(local, "eb")
    assert local.join(a, "r")
    assert not local.join(a, "r")
    assert not local.join(a, a)
    assert not local.join("nobody", "r")
    assert set(local.members("r")) == {a}
    assert set(local.members(b)) == {b}
    assert sorted(local.get_rooms(a, "/")) == sorted([a, "r"])
    for wrong in (
        lambda: local.join(a, b),
        lambda: local.basic_close_room(b, "/"),
        lambda: local.basic_enter_room("nobody", "/", "r"),
        lambda: local.basic_enter_room(a, "/none", "r"),
    ):
        with pytest.raises(ValueError, match="sid"):
            wrong()
    await local.enter_room(b, "/", "r")
    assert sorted(sid for sid, _ in local.get_participants("/", ["r", a])) == sorted([a, b])
    assert local.leave(a, "r")
    assert not local.leave(a, "r")
    assert not local.leave(a, a)
    assert local.is_connected(a, "/")


async def test_join_and_leave_are_told() -> None:
    local = manager()
    told: list[tuple[str, ...]] = []
    local.on_join += [lambda *what: 1 / 0, lambda *what: told.append(("join", *what))]
    local.on_leave += [lambda *what: 1 / 0, lambda *what: told.append(("leave", *what))]
    a, b = await add(local, "ea"), await add(local, "eb")
    for sid in (a, b):
        await local.enter_room(sid, "/", "r")
    local.join(a, "s")
    await local.close_room("s", "/")
    await local.disconnect(a, "/")
    await local.disconnect(a, "/")
    await local.leave_room(b, "/", "r")
    assert told == [
        ("join", "/", "r", a),
        ("join", "/", "r", b),
        ("join", "/", "s", a),
        ("leave", "/", "s", a),
        ("leave", "/", "r", a),
        ("leave", "/", "r", b),
    ]


async def test_emit_once_per_socket_and_exceptions() -> None:
    local = manager()
    a, b, c = [await add(local, e) for e in ("ea", "eb", "ec")]
    for sid in (a, b):
        local.join(sid, "r")
    local.join(b, "s")
    assert local.emit_local("x", [1], ["r", "s", c]) == 3
    assert got(local, b) == [["x", 1]]
    assert local.emit_local("y", [], [], ["r"]) == 1
    assert got(local, c) == [["x", 1], ["y"]]
    assert local.emit_local("z", [], ["r"], [a]) == 1
    await local.emit("w", ("1", 2), "/", to=["r", "s"], skip_sid=a)
    assert got(local, b)[-1] == ["w", "1", 2]
    await local.emit("v", None, "/", room="r", skip_sid=[a, b])
    await local.emit("v", None, "/none")
    assert got(local, a) == [["x", 1]]
    local.server.sockets["ea"].behind = True
    local.emit_now("volatile", [], ["r"], volatile=True)
    assert got(local, a) == [["x", 1]]
    assert got(local, b)[-1] == ["volatile"]


async def test_counted() -> None:
    local = manager()
    a = await add(local, "ea")
    assert [await local.emit_counted("k", "u", {"x": 1}, [a]) for _ in range(2)] == [1, 2]
    assert await local.emit_counted("other", "u", {}, [a]) == 1
    assert got(local, a) == [["u", {"x": 1, "seq": 1}], ["u", {"x": 1, "seq": 2}], ["u", {"seq": 1}]]


async def test_callbacks_are_freed() -> None:
    local = manager()
    a = await add(local, "ea")
    answers: list[Any] = []
    await local.emit("q", 1, "/", to=a, callback=lambda *args: answers.append(args))
    await local.emit("q", 1, "/", to=a, callback=lambda *args: answers.append(args))
    await local.emit("q", 1, "/", to="nobody", callback=answers.append)
    await local.trigger_callback(a, 2, ["yes"])
    await local.trigger_callback(a, 2, ["again"])
    await local.trigger_callback(a, 0, ["the counter is no callback"])
    await local.trigger_callback("nobody", 1, [])
    assert answers == [("yes",)]
    await local.disconnect(a, "/")
    assert local.callbacks == {}


class Counting(dict[str, Any]):
    """A dictionary that counts walks over all of it."""

    walks = 0

    def _walk(self, name: str) -> Any:
        Counting.walks += 1
        return getattr(super(), name)()

    def __iter__(self) -> Any:
        return self._walk("__iter__")

    def items(self) -> Any:
        return self._walk("items")

    def keys(self) -> Any:
        return self._walk("keys")

    def values(self) -> Any:
        return self._walk("values")

    def copy(self) -> Any:
        return self._walk("copy")


async def test_disconnect_does_not_scan() -> None:
    local = manager()
    sids = [await add(local, f"e{i}") for i in range(3000)]
    for i, sid in enumerate(sids):
        local.join(sid, f"room{i}")
        local.join(sid, "everybody")
    ns = local._namespaces["/"]
    for name in ("eio", "by_eio", "connected", "rooms", "rooms_of"):
        setattr(ns, name, Counting(getattr(ns, name)))
    ns.rooms["everybody"] = Counting(ns.rooms["everybody"])
    for sid in sids[:-1]:
        await local.disconnect(sid, "/")
    assert Counting.walks == 0
    assert set(ns.rooms) == {"room2999", "everybody"}
    assert Counting.walks > 0, "the counter works"


class Rooms(RuleBasedStateMachine):
    """LocalManager against the simplest model: a set of (sid, room)."""

    def __init__(self) -> None:
        super().__init__()
        self.local = manager()
        self.model: dict[str, set[str]] = {}
        self.told: set[tuple[str, str]] = set()
        self.local.on_join.append(lambda ns, room, sid: self.told.add((sid, room)))
        self.local.on_leave.append(lambda ns, room, sid: self.told.remove((sid, room)))
        self.count = 0

    @rule()
    def connect(self) -> None:
        self.count += 1
        sid = self.local.basic_pre_connect(f"e{self.count}", "/")
        assert sid is not None
        ns = self.local._namespaces["/"]
        ns.connected[sid] = ns.eio[sid]
        self.model[sid] = set()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), room=st.sampled_from("abc"), enter=st.booleans())
    def move(self, data: st.DataObject, room: str, enter: bool) -> None:
        sid = data.draw(st.sampled_from(sorted(self.model)))
        if enter:
            assert self.local.join(sid, room) is (room not in self.model[sid])
            self.model[sid].add(room)
        else:
            assert self.local.leave(sid, room) is (room in self.model[sid])
            self.model[sid].discard(room)

    @rule(room=st.sampled_from("abc"))
    def close(self, room: str) -> None:
        self.local.basic_close_room(room, "/")
        for rooms in self.model.values():
            rooms.discard(room)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        sid = data.draw(st.sampled_from(sorted(self.model)))
        self.local.basic_disconnect(sid, "/")
        del self.model[sid]

    @invariant()
    def agrees(self) -> None:
        assert self.told == {(sid, room) for sid, rooms in self.model.items() for room in rooms}
        assert {sid for sid, _ in self.local.get_participants("/", None)} == set(self.model)
        for room in "abc":
            assert set(self.local.members(room)) == {
                sid for sid, rooms in self.model.items() if room in rooms
            }
        assert bool(self.local.get_namespaces()) is bool(self.model)


TestRooms = Rooms.TestCase
TestRooms.settings = settings(max_examples=40, stateful_step_count=30)
