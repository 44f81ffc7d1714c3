"""Names, selection, medians, goals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.bench.figures import (
    APART,
    FIGURES,
    PHASES,
    QUOTIENTS,
    Goal,
    Sample,
    all_slugs,
    missed,
    needed,
    rounded,
    rows,
)


def samples(server: str, replicas: int, figure: str, *values: float) -> list[Sample]:
    return [Sample(server, replicas, figure, value) for value in values]


def test_names_that_other_programs_rely_on() -> None:
    names = all_slugs()
    for name in (
        "rpc-p50-sequential",
        "rpc-p99-sequential",
        "rpc-rate-1",
        "rpc-rate-64",
        "broadcast-rate",
        "broadcast-cpu-per-delivery",
        "rpc-p50-sequential-2",
        "rpc-rate-64-8",
        "rpc-cost-8-over-2",
        "remote-emit-p50-ms",
        "remote-emit-p99-ms",
        "fetch-sockets-p99-ms",
        "rss-per-websocket-kib",
        "disconnect-ms",
    ):
        assert name in names
    assert len(names) == len(set(names)) == sum(len(figure.sizes) for figure in FIGURES) + len(QUOTIENTS)


def test_only_the_usual_number_of_replicas_has_no_suffix() -> None:
    names = {figure.name: figure for figure in FIGURES}
    assert names["broadcast-rate"].slug(3) == "broadcast-rate"
    assert names["broadcast-rate"].slug(8) == "broadcast-rate-8"
    assert names["disconnect-ms"].slug(1) == "disconnect-ms"


def test_everything_is_needed_for_everything() -> None:
    usual = [phase for phase in PHASES if phase not in ("crowd", "churn", "log")]
    assert needed([]) == {3: usual, 2: [*usual[:5], "log"], 8: usual[:5], 1: ["crowd", "churn"]}


def test_nothing_comes_after_the_end_of_a_replica() -> None:
    for phases in needed([]).values():
        together = [phase for phase in phases if phase not in APART]
        assert "dying" not in together[:-1]


def test_only_what_a_row_needs_is_run() -> None:
    assert needed(["rpc-p99-sequential"]) == {3: ["sequential"]}
    assert needed(["broadcast-rate-8", "rpc-rate-64-8"]) == {8: ["concurrent", "flood"]}
    assert needed(["rpc-cost-8-over-2"]) == {2: ["sequential"], 8: ["sequential"]}


@given(st.sets(st.sampled_from(all_slugs()), min_size=1))
def test_what_is_run_yields_every_row_asked_for(only: set[str]) -> None:
    taken = [
        Sample(server, replicas, figure.name, 1.0)
        for replicas, phases in needed(only).items()
        for figure in FIGURES
        if figure.phase in phases and replicas in figure.sizes
        for server in ("moorage", "node")
    ]
    assert {row["name"] for row in rows(taken, "node", only)} == only


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(ValueError, match="rpc-p51"):
        needed(["rpc-rate-1", "rpc-p51"])


def test_a_row_is_the_median_of_its_rounds_beside_the_peers() -> None:
    taken = samples("moorage", 3, "rpc-p50-sequential", 0.4, 9.0, 0.5)
    taken += samples("node", 3, "rpc-p50-sequential", 1.0, 2.0, 1.25)
    assert rows(taken, "node 20") == [
        {
            "name": "rpc-p50-sequential",
            "unit": "ms",
            "ours": 0.5,
            "peer": 1.25,
            "peerName": "node 20",
            "ratio": 0.4,
            "better": "lower",
            "goal": "ratio <= 0.5",
            "met": True,
        }
    ]


def test_without_a_peer_the_goal_stands_unjudged() -> None:
    (row,) = rows(samples("moorage", 8, "rpc-rate-64", 5000.0), None)
    assert row == {
        "name": "rpc-rate-64-8",
        "unit": "calls/s",
        "ours": 5000.0,
        "better": "higher",
        "goal": "ratio >= 2",
    }
    assert missed([row]) == []


def test_a_peer_alone_makes_no_row() -> None:
    assert rows(samples("node", 3, "rpc-rate-64", 5000.0), "node") == []


def test_growth_is_judged_on_our_own_quotient() -> None:
    taken = samples("moorage", 2, "rpc-p50-sequential", 1.0) + samples(
        "moorage", 8, "rpc-p50-sequential", 1.3
    )
    taken += samples("node", 2, "rpc-p50-sequential", 1.0) + samples("node", 8, "rpc-p50-sequential", 4.0)
    (row,) = rows(taken, "node", ["rpc-cost-8-over-2"])
    assert (row["ours"], row["peer"], row["goal"], row["met"]) == (1.3, 4.0, "ours <= 1.2", False)
    assert missed([row]) == [row]


@pytest.mark.parametrize(
    ("goal", "row", "met"),
    [
        (Goal("ratio", "<=", 0.5), {"ratio": 0.5}, True),
        (Goal("ratio", "<=", 0.5), {"ratio": 0.51}, False),
        (Goal("ratio", ">=", 2.0), {"ratio": 2.0}, True),
        (Goal("ratio", ">=", 2.0), {"ratio": 1.99}, False),
        (Goal("ours", "<=", 1.2), {"ours": 1.2, "ratio": 9.0}, True),
        (Goal("ratio", ">=", 2.0), {"ours": 9.0}, None),
    ],
)
def test_goals(goal: Goal, row: dict[str, float], met: bool | None) -> None:
    assert goal.met(row) is met


def test_a_peer_of_zero_gives_no_ratio() -> None:
    taken = samples("moorage", 3, "rpc-rate-64", 1.0) + samples("node", 3, "rpc-rate-64", 0.0)
    (row,) = rows(taken, "node")
    assert "ratio" not in row
    assert "met" not in row


def test_figures_are_rounded_to_four_digits() -> None:
    assert [rounded(value) for value in (0.123456, 12345.6, 1.0)] == [0.1235, 12350.0, 1.0]
