"""Changes of rooms in the stream, applied to a socket that comes back."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from moorage.cluster.changes import UNTOLD_MS, Change, Changes, first_place
from moorage.cluster.pids import Pid
from moorage.cluster.sessions import Known, Told
from moorage.cluster.wire import Opts


def change(at: int | None, joins: bool, to: Collection[str], but: Collection[str], *rooms: str) -> Change:
    return Change((at, 0) if at is not None else None, joins, Opts(list(to), list(but)), rooms)


def known(read: str = "5-0", *, left: bool = False) -> Known:
    return Known("node", Told(rooms=[], read=read, left=left), 0.0)


@pytest.mark.parametrize(
    ("to", "but", "meant"),
    [
        ((), (), True),
        (("a",), (), True),
        (("x", "a"), (), True),
        (("s",), (), True),
        (("x",), (), False),
        ((), ("s",), False),
        (("a",), ("b",), False),
        (("a",), ("x",), True),
    ],
)
def test_who_is_meant(to: Collection[str], but: Collection[str], meant: bool) -> None:
    rooms = frozenset("ab")
    assert change(1, True, to, but, "new", "s").apply("s", rooms) == (rooms | {"new"} if meant else rooms)
    assert change(1, False, to, but, "a", "s").apply("s", rooms) == (rooms - {"a"} if meant else rooms)


def test_in_order_behind_what_is_told_and_each_once() -> None:
    changes = Changes("/")
    changes.live(change(7, True, ["a"], (), "b"))
    changes.live(change(8, True, ["b"], (), "c"))
    changes.live(change(None, True, ["c"], (), "d"))
    changes.read(
        [
            change(5, True, ["a"], (), "told before"),
            change(6, True, ["a"], (), "x"),
            change(7, True, ["a"], (), "b"),
            change(9, False, ["b"], (), "b"),
        ]
    )
    # 8 comes behind 9 here: it was not there yet when the stream was read.
    assert changes.apply("s", frozenset("a"), known()) == {"a", "x"}
    changes.live(change(10, True, ["x"], (), "y"))
    assert changes.apply("s", frozenset("a"), known()) == {"a", "x", "y"}


def test_who_has_left_or_whose_node_tells_no_place_gets_none() -> None:
    pid = Pid("s", "/", "node", b"3-0", b"")
    for one in (known(left=True), known(read=""), known(read="no place")):
        changes = Changes("/")
        changes.read([change(9, True, ["a"], (), "b")])
        assert changes.apply("s", frozenset("a"), one) == {"a"}
        assert first_place(one, pid, b"9-0") is None


def test_where_to_look_from() -> None:
    far = b"%d-4" % (10 * UNTOLD_MS)
    pid = Pid("s", "/", "node", far, b"")
    assert first_place(None, pid, far) == (10 * UNTOLD_MS, 4)
    pid = Pid("s", "/", "node", b"1-0", b"")
    assert first_place(None, pid, far) == (9 * UNTOLD_MS, 0)
    assert first_place(known(f"{11 * UNTOLD_MS}-1"), pid, far) == (11 * UNTOLD_MS, 1)
    assert first_place(None, pid, b"5-0") == (1, 0)
