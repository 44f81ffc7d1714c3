from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.report import calls
from moorage_chaos.report.calls import OK, TYPED, UNTYPED, thinned
from moorage_chaos.report.data import of_history, of_run
from moorage_chaos.report.delivery import deliveries
from moorage_chaos.report.detection import detections
from moorage_chaos.report.lives import bands, lanes
from moorage_chaos.report.timeline import Timeline, steps
from moorage_chaos.report.worst import worst

from ._story import Story, run_of, whole


@pytest.fixture
def data() -> dict[str, Any]:
    return of_history(whole())


def test_every_call_is_a_point_and_one_without_an_end_is_drawn_as_long_as_it_was_open(
    data: dict[str, Any],
) -> None:
    points = data["calls"]["scatter"]
    assert points["of"] == len(points["x"]) == 22
    assert [points["k"].count(kind) for kind in (OK, TYPED, UNTYPED)] == data["calls"]["ends"] == [20, 1, 1]
    assert max(points["y"]) == pytest.approx(700 - 255, rel=0.01)


def test_rates_and_quantiles_count_each_call_once(data: dict[str, Any]) -> None:
    lines, width = data["calls"]["lines"], data["calls"]["width"]
    assert sum(lines["ok"]) * width == pytest.approx(20)
    assert sum(lines["bad"]) * width == pytest.approx(2)
    assert max(value for value in lines["max"] if value is not None) == 62.0
    assert len(lines["x"]) == len(lines["p50"]) == len(lines["ok"])


def test_a_fault_is_a_band_until_its_undo_with_its_evidence(data: dict[str, Any]) -> None:
    [band] = data["bands"]
    assert (band["from"], band["to"], band["kind"], band["proof"]) == (0.3, 0.5, "kill", "exitCode -9")


def test_lanes_say_who_was_there(data: dict[str, Any]) -> None:
    spans = {lane["name"]: [span["state"] for span in lane["spans"]] for lane in data["lanes"]}
    assert spans == {"replica-1-aa": ["ready"], "replica-2": ["ready", "down", "ready"]}
    down = data["lanes"][1]["spans"][1]
    assert (down["from"], down["to"]) == (0.301, 0.48)


def test_links_and_redis_have_their_spans() -> None:
    story = Story(replicas=["replica-1-aa"])
    story.fault(100, "link-down", "replica-1", lasts=50)
    story.fault(200, "redis-pause", "redis", lasts=100)
    story.fault(400, "pause", "replica-1-aa", lasts=100)
    timeline = Timeline.of(story.history)
    found = {
        lane["name"]: lane["spans"] for lane in lanes(story.history, timeline, bands(story.history, timeline))
    }
    assert [span["state"] for span in found["replica-1-aa"]] == ["ready", "cut", "paused"]
    assert [span["state"] for span in found["redis"]] == ["ready", "paused", "ready"]


def test_equal_faults_have_their_own_undo() -> None:
    story = Story()
    for start in (0, 100):
        story.fault(start, "link-down", "replica-1", lasts=50)
    found = bands(story.history, Timeline.of(story.history))
    assert [(band["from"], band["to"]) for band in found] == [(0.0, 0.05), (0.1, 0.15)]


def test_detection_counts_from_the_loss_to_the_ends_of_what_was_in_flight() -> None:
    history = whole()
    found = detections(history, Timeline.of(history))
    assert found["kinds"] == [
        {"kind": "kill", "losses": 1, "samples": 1, "first": 12.0, "p50": 12.0, "last": 12.0}
    ]
    assert found["each"][0]["calls"] == 2
    assert found["each"][0]["ends"] == "target_disconnected x1, unaccounted x1"


def test_the_reconnect_curve_goes_down_with_a_connection(data: dict[str, Any]) -> None:
    assert data["clients"]["connected"]["y"] == [1.0, 2.0, 1.0]
    assert data["clients"]["registered"]["y"] == [1.0, 0.0]


def test_deliveries_per_client(data: dict[str, Any]) -> None:
    by_name = {row["client"]: row for row in data["deliveries"]["clients"]}
    assert (by_name["caller"]["delivered"], by_name["caller"]["doubled"]) == (1, 1)
    assert (by_name["target"]["expected"], by_name["target"]["missing"]) == (1, 1)
    assert data["deliveries"]["total"]["missing"] == 1


def test_readers_of_an_event_log_are_clients_too() -> None:
    story = Story()
    h = story.history
    h.note("reader", reader="r1", session="s", kind="sse")
    for number in (1, 2, 3):
        story.at(number * 10).history.begin("append", session="s", type="t").ok(id=f"{number}-0", seq=number)
    for number in (1, 1, 3):
        h.note("event", reader="r1", id=f"{number}-0", type="t")
    h.note("gap", reader="r1", reason="trimmed")
    found = deliveries(h)
    assert found is not None
    assert found["clients"] == [
        {"client": "r1", "expected": 3, "delivered": 2, "missing": 1, "doubled": 1, "others": 0, "gaps": 1}
    ]


def test_the_worst_come_with_what_happened_meanwhile() -> None:
    history = whole()
    found = worst(history, Timeline.of(history))
    assert [one["end"] for one in found][:3] == ["unaccounted", "target_disconnected", "ok"]
    trace = [step["what"] for step in found[1]["trace"]]
    assert any(line.startswith("fault ok") for line in trace)
    assert any(line.startswith("down: client target") for line in trace)
    assert [step["ms"] for step in found[1]["trace"]] == sorted(step["ms"] for step in found[1]["trace"])


POINTS = st.lists(
    st.tuples(st.floats(0, 60), st.floats(0.001, 1e5), st.integers(0, 2)), min_size=1, max_size=300
)


@given(POINTS)
def test_thinning_keeps_the_extremes_of_each_kind(points: list[tuple[float, float, int]]) -> None:
    whole_limit, calls.ALL_BELOW = calls.ALL_BELOW, 0
    try:
        kept = thinned(points, 60.0)
    finally:
        calls.ALL_BELOW = whole_limit
    assert set(kept) <= set(points)
    for kind in {k for _, _, k in points}:
        values = [y for _, y, k in points if k == kind]
        drawn = [y for _, y, k in kept if k == kind]
        assert (max(values), min(values)) == (max(drawn), min(drawn))


def test_a_hundred_thousand_points_become_few_enough_to_draw() -> None:
    points = [(i * 0.0006, 0.5 + (i * 7919 % 1000) / 100, 0) for i in range(100_000)]
    points.append((30.0, 5000.0, UNTYPED))
    kept = thinned(points, 60.0)
    assert len(kept) < 25_000
    assert (30.0, 5000.0, UNTYPED) in kept


SECONDS = st.integers(0, 100_000).map(lambda n: n / 10_000)
"""As a timeline has them, to 0.1 ms: what is over 5e-324 s after its begin cannot be cut into columns."""


@given(st.lists(st.tuples(SECONDS, st.sampled_from([1, -1])), max_size=200))
def test_a_thinned_staircase_keeps_its_lowest_highest_and_last_level(
    changes: list[tuple[float, int]],
) -> None:
    full, thin = steps(changes), steps(changes, columns=3)
    if full["y"]:
        assert (min(thin["y"]), max(thin["y"])) == (min(full["y"]), max(full["y"]))
        assert thin["y"][-1] == full["y"][-1]


def test_a_row_whose_history_is_missing_or_junk_costs_only_its_charts(tmp_path: Path) -> None:
    whole().save(tmp_path / "a-row" / "history.jsonl")
    (tmp_path / "no-history").mkdir()
    (tmp_path / "no-history" / "history.jsonl").write_text("junk")
    first, second = of_run(run_of(), tmp_path)["rows"]
    assert first["history"]["events"] == len(whole().events)
    assert second["history"] is None
    assert "line 1" in second["trouble"]


def test_a_long_trace_keeps_its_beginning_and_its_end() -> None:
    story = Story()
    for n in range(60):
        story.at(n).history.note("cut", client="caller")
    story.at(0)
    operation = story.history.begin("call", process="caller", caller="caller", method="m")
    story.at(70)
    operation.info(code="timeout")
    [found] = worst(story.history, Timeline.of(story.history))
    what = [step["what"] for step in found["trace"]]
    assert what[-1].startswith("call info")
    assert what[0].startswith(("cut", "call invoke"))
    assert "32 left out" in what[len(what) // 2]
