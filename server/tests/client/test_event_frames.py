from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.client.event_frames import (
    Checkpoint,
    Done,
    Event,
    Gap,
    Ping,
    Ready,
    frame_of,
    number,
    parse,
    turn_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["type", "id", "seq", "event", "lastEventId", "lastSeq", "epoch", "reason", "missed", "events"]
)
TYPES = st.sampled_from(["event", "ws_ready", "replay_done", "replay_gap", "ping"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-0", (0, 0)),
        ("1700000000000-12", (1700000000000, 12)),
        ("18446744073709551615-18446744073709551615", (2**64 - 1, 2**64 - 1)),
        ("18446744073709551616-0", None),
        ("0-18446744073709551616", None),
        ("1-2\n", None),
        ("١-٢", None),
        ("-1-2", None),
        ("1", None),
        ("1-", None),
        ("1-2-3", None),
        ("", None),
        (None, None),
        (12, None),
    ],
)
def test_ids(text: object, expected: tuple[int, int] | None) -> None:
    assert number(text) == expected


def test_a_checkpoint_goes_through_any_storage() -> None:
    place = Checkpoint("17-4", 9, "e")
    assert Checkpoint(**json.loads(json.dumps(asdict(place)))) == place
    with pytest.raises(ValueError, match="not an event id: 'x'"):
        Checkpoint("x")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            {"type": "ws_ready", "sessionId": "s", "lastEventId": "3-1", "lastSeq": 4, "epoch": "e"},
            Ready(Checkpoint("3-1", 4, "e")),
        ),
        (
            {
                "type": "event",
                "id": "3-1",
                "seq": 4,
                "event": {"type": "t", "data": [1], "key": "k", "at": 5},
            },
            Event("3-1", 4, "t", [1], "k", 5),
        ),
        (
            {"type": "event", "id": None, "seq": None, "event": {"type": "t", "data": 1, "at": 5}},
            Event(None, None, "t", 1, None, 5),
        ),
        ({"type": "replay_done", "lastEventId": "3-1"}, Done("3-1")),
        ({"type": "replay_gap", "reason": "epoch", "oldest": None}, Gap("epoch", None, None)),
        ({"type": "replay_gap", "reason": "trimmed", "oldest": "3-1", "missed": 2}, Gap("trimmed", "3-1", 2)),
        ({"type": "ping"}, Ping()),
        ({"type": "what a later version says"}, None),
        ({"type": "event", "id": "3-1", "seq": None, "event": {"type": "t"}}, None),
        ({"type": "event", "id": "3", "seq": 1, "event": {"type": "t"}}, None),
        ({"type": "event", "id": "3-1", "seq": True, "event": {"type": "t"}}, None),
        ({"type": "event", "id": "3-1", "seq": 1, "event": {"type": 1}}, None),
        ({"type": "ws_ready", "lastEventId": 4}, None),
        ([], None),
    ],
)
def test_frames(raw: Any, expected: object) -> None:
    assert frame_of(raw) == expected
    assert parse(json.dumps(raw)) == expected


@given(st.text() | st.binary())
def test_junk_is_no_frame(text: str | bytes) -> None:
    frame = parse(text)
    assert frame is None or isinstance(frame, Ready | Event | Done | Gap | Ping)


@given(st.dictionaries(FIELDS, JSON | TYPES))
def test_odd_frames_raise_nothing(raw: dict[str, Any]) -> None:
    frame_of(raw)
    turn_of(raw)


def test_deep_junk_is_no_frame() -> None:
    assert parse("[" * 100_000) is None


def test_a_turn() -> None:
    frame = {
        "type": "event",
        "id": "3-1",
        "seq": 4,
        "event": {"type": "session_created", "data": {}, "at": 1},
    }
    raw = {"taskId": "t", "status": "done", "input": 1, "result": 2, "events": [frame, {"type": "junk"}]}
    turn = turn_of(raw | {"lastEventId": "3-1", "lastSeq": 4, "epoch": "e", "truncated": True})
    assert turn is not None
    assert (turn.task_id, turn.status, turn.input, turn.result, turn.truncated) == ("t", "done", 1, 2, True)
    assert [event.seq for event in turn.events] == [4]
    assert turn.last == Checkpoint("3-1", 4, "e")
    failed = turn_of(raw | {"status": "failed", "error": "no berth"})
    assert failed is not None
    assert (failed.status, failed.error, turn.error) == ("failed", "no berth", None)
    empty = turn_of(raw | {"events": [], "lastEventId": "0-0", "lastSeq": 0, "epoch": "e"})
    assert empty is not None
    assert empty.last is None
    assert turn_of({"error": "x"}) is None
