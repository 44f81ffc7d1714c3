"""Shapes, ids and their order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.errors import EventTooLarge, InvalidEvent
from moorage.events.frames import EventId, Frame, Resume, make_event, ready_frame

numbers = st.integers(0, 2**64 - 1)
ids = st.builds(EventId, numbers, numbers)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3
    ),
    max_leaves=10,
)  # fmt: skip


@given(ids, ids)
def test_ids_are_ordered_as_two_numbers(one: EventId, other: EventId) -> None:
    assert EventId.parse(str(one)) == one
    assert (one < other) == ((one.ms, one.n) < (other.ms, other.n))


def test_ids_are_not_ordered_as_text() -> None:
    assert EventId.parse("9-0") < EventId.parse("10-0")  # type: ignore[operator]
    assert EventId.parse("10-9") < EventId.parse("10-10")  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    ["", "-", "1", "1-", "-1", "1-2-3", "a-1", "1-b", " 1-2", "1-2 ", "1-2\n", "+1-2", "1--2", "1.0-2", "٣-1", "²-1",
     "0x1-2", "1_0-2", f"{2**64}-0", f"0-{2**64}", "0" * 200 + "1-0", "1-0\x00"],
)  # fmt: skip
def test_what_is_no_id(text: str) -> None:
    assert EventId.parse(text) is None


@given(st.text())
def test_any_text_is_an_id_or_none(text: str) -> None:
    found = EventId.parse(text)
    if found is not None:
        assert EventId.parse(str(found)) == found
        assert text.isascii()


@given(
    json_values,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    ids,
    st.integers(1),
)
def test_a_frame_holds_its_event_on_every_carrier(data: Any, kind: str, id: EventId, seq: int) -> None:
    event = make_event(kind, data, None, 17, 10**6)
    frame = Frame.event(event.json, id, seq)
    expected = {
        "type": "event", "id": str(id), "seq": seq,
        "event": {"type": kind, "data": json.loads(json.dumps(data)), "at": 17},
    }  # fmt: skip
    assert json.loads(frame.json) == expected
    assert frame.websocket.endswith(frame.json)
    id_line, data_line, empty, rest = frame.sse("e1").split(b"\n")
    assert id_line.decode() == f"id: e1:{id}:{seq}"
    assert (data_line, empty, rest) == (b"data: " + frame.json, b"", b"")
    packet = frame.socketio("s-1").text
    assert json.loads(packet[1:]) == ["session-event", {**expected, "sessionId": "s-1"}]


def test_frames_are_encoded_once_per_session_and_epoch() -> None:
    frame = Frame.event(make_event("t", 1, "k", 5, 100).json, EventId(1, 2), 3)
    assert frame.socketio("s") is frame.socketio("s")
    assert json.loads(frame.socketio("other").text[1:])[1]["sessionId"] == "other"
    assert frame.sse("a") != frame.sse("b")
    assert json.loads(frame.json)["event"]["key"] == "k"


def test_control_frames_have_no_sse_id_except_ready() -> None:
    assert Frame.control({"type": "replay_done", "lastEventId": "1-1"}).sse("e").startswith(b"data: ")
    assert Frame.event(b"{}").sse("e").startswith(b"data: ")
    ready = ready_frame("s", EventId(5, 1), 7, "e")
    assert ready.sse("e").startswith(b"id: e:5-1:7\n")
    assert json.loads(ready.json) == {
        "type": "ws_ready", "sessionId": "s", "lastEventId": "5-1", "lastSeq": 7, "epoch": "e",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (("1-1", "5", "e"), Resume("1-1", 5, "e")), (("1-1", 5, "e"), Resume("1-1", 5, "e")),
        (("1-1", None, None), Resume("1-1")), (("1-1", "x", ""), Resume("1-1")), (("1-1", "-1", 5), Resume("1-1")),
        (("1-1", True, "e"), Resume("1-1", None, "e")), (("1-1", 1.5, []), Resume("1-1")), (("", "٣"), Resume("")),
        (("1-1", "9" * 40), Resume("1-1")),
    ],
)  # fmt: skip
def test_where_a_client_says_it_stopped(sent: tuple[Any, ...], meant: Resume) -> None:
    assert Resume.parse(*sent) == meant


def test_last_event_id_of_sse() -> None:
    assert Resume.from_sse("e1:5-0:7") == Resume("5-0", 7, "e1")
    assert Resume.from_sse("5-0") == Resume("5-0")
    assert Resume.from_sse("a:b") == Resume("a:b")
    assert EventId.parse(Resume.from_sse("a:b:c:d").after) is None


@pytest.mark.parametrize(
    ("kind", "data", "key"),
    [("", 1, None), ("x" * 257, 1, None), (5, 1, None), (None, 1, None), ("\ud800", 1, None), ("t", b"bytes", None),
     ("t", 2**80, None), ("t", {"\ud800": 1}, None), ("t", 1, ""), ("t", 1, 5), ("t", 1, "k" * 257),
     ("t", {1: 2}, None)],
)  # fmt: skip
def test_what_is_no_event(kind: Any, data: Any, key: Any) -> None:
    with pytest.raises(InvalidEvent):
        make_event(kind, data, key, 1, 1000)


def test_the_size_of_data_is_that_of_its_json() -> None:
    assert make_event("t", "x" * 98, None, 1, 100).data == b'"' + b"x" * 98 + b'"'
    with pytest.raises(EventTooLarge):
        make_event("t", "x" * 99, None, 1, 100)
    with pytest.raises(EventTooLarge):
        make_event("t", "é" * 50, None, 1, 100)
