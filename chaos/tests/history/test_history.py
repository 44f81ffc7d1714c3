from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.history import History

VALUES = st.dictionaries(
    st.text(max_size=8),
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=12)
    | st.lists(st.text(max_size=4)),
    max_size=4,
)


def test_operation_ends_once() -> None:
    history = History()
    operation = history.begin("call", process="c", method="m")
    assert not operation.done
    operation.info(code="timeout")
    operation.ok(result=1)
    [pair] = history.pairs("call")
    assert pair.phase == "info"
    assert pair.result == {"code": "timeout"}
    assert operation.done
    assert not operation.good


def test_an_operation_without_end_is_kept_and_counts_as_unknown() -> None:
    history = History()
    history.begin("call")
    history.begin("call").ok()
    history.begin("call").fail()
    assert [pair.phase for pair in history.pairs("call")] == [None, "ok", "fail"]
    assert history.counts() == {"ok": 1, "failed": 1, "unknown": 1}


def test_notes_are_no_operations() -> None:
    history = History()
    history.note("down", client="a", t=5)
    history.note("down", client="b")
    history.begin("down").info()
    assert [note.value["client"] for note in history.notes("down")] == ["a", "b"]
    assert history.notes("down", client="a")[0].t == 5


def test_times_of_another_process_are_kept() -> None:
    history = History()
    history.record("connect", 10, 2_000_010, {"client": "i"}, {"replica": "r"}, process="idle")
    [pair] = history.pairs("connect")
    assert (pair.t0, pair.t1, pair.ms) == (10, 2_000_010, 2.0)


@given(
    st.lists(st.tuples(st.sampled_from(["ok", "fail", "info", "none", "note"]), VALUES), max_size=12), VALUES
)
def test_round_trip(steps: list[tuple[str, dict[str, Any]]], header: dict[str, Any]) -> None:
    header.pop("format", None)
    history = History(header)
    for phase, value in steps:
        if phase == "note":
            history.add("seen", "info", value)
            continue
        history.add("call", "invoke", value, id=len(history.events))
        if phase != "none":
            history.add("call", phase, value, id=len(history.events) - 1)  # type: ignore[arg-type]
    again = History.parse(history.lines())
    assert again.events == history.events
    assert again.header == history.header


def test_ids_go_on_after_loading() -> None:
    history = History()
    history.begin("call").ok()
    again = History.parse(history.lines())
    assert again.begin("call").id == 2


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"null", b'{"t": 1}', b'{"t":1,"wall":1,"process":"p","op":"o","phase":"ok"}']
)
def test_a_line_that_is_no_event_is_named(line: bytes) -> None:
    head = next(History().lines())
    with pytest.raises(ValueError, match="line 2"):
        History.parse([head, line])


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1"):
        History.parse([b'{"format": 2}'])


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    history = History({"row": "x"})
    history.begin("call", odd={1: object()}).ok()
    path = tmp_path / "deep" / "history.jsonl"
    history.save(path)
    assert [file.name for file in path.parent.iterdir()] == ["history.jsonl"]
    assert History.load(path).header == {"row": "x"}
