"""The command line, rounds in turn, notes for missed goals. Nothing is started."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.bench import cli, figures, profile, servers
from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.figures import Phase, Sample
from moorage_chaos.bench.rig import QUICK, Durations
from moorage_chaos.bench.rounds import Bench
from moorage_chaos.bench.servers import Kind


class Scripted(Bench):
    """Rounds that yield 1.0 for ours and 2.0 for Node, or fail as told."""

    failing: Mapping[tuple[str, int], str]
    ran: list[tuple[str, int]]
    phases: list[tuple[str, list[Phase]]]

    async def round(self, kind: Kind, replicas: int, phases: Sequence[Phase]) -> None:
        self.ran.append((kind.name, replicas))
        self.phases.append((kind.name, list(phases)))
        if (kind.name, replicas) in self.failing:
            raise BenchError(self.failing[kind.name, replicas])
        for figure in figures.FIGURES:
            if figure.phase in phases:
                self.samples.append(
                    Sample(kind.name, replicas, figure.name, 1.0 if kind.name == "moorage" else 2.0)
                )

    async def profiles(
        self, plan: Mapping[int, Sequence[Phase]], build: Path
    ) -> dict[tuple[int, Phase], profile.Profile]:
        slow = profile.Profile(2.0, {"calls.py:1 call": 1.5, "wire.py:2 encode": 0.5}, {})
        return {
            (replicas, phase): slow
            for replicas, phases in plan.items()
            for phase in phases
            if phase in figures.SAMPLED
        }


def bench(failing: Mapping[tuple[str, int], str] | None = None) -> Scripted:
    made = Scripted(None, Path(), QUICK, lambda line: None)  # type: ignore[arg-type]  # no Redis is needed
    made.failing, made.ran, made.phases = failing or {}, [], []
    return made


def options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"profile": False, "servers": "moorage,node", "build": Path()} | given)


async def test_servers_take_turns() -> None:
    made = bench()
    assert await made.run({3: ["flood"], 8: ["flood"]}, ["moorage", "node"], 2) == []
    turns = ["moorage", "node"] * 2
    assert made.ran == [(name, 3) for name in turns] + [(name, 8) for name in turns]


async def test_what_is_long_runs_once_and_what_is_ours_runs_for_ours() -> None:
    made = bench()
    await made.run({3: ["asking", "dying"], 1: ["crowd", "churn"]}, ["moorage", "node"], 2)
    assert made.phases == [
        ("moorage", ["asking", "dying"]), ("node", ["asking"]), ("moorage", ["asking", "dying"]), ("node", ["asking"]),
        ("moorage", ["crowd"]), ("moorage", ["churn"]), ("node", ["crowd"]), ("node", ["churn"]),
    ]  # fmt: skip


async def test_a_missed_goal_that_no_profile_explains_has_no_note() -> None:
    made = bench()
    await made.run({1: ["crowd"]}, ["moorage"], 1)
    table = figures.rows(made.samples, None, ["disconnect-ms"])
    assert [row["met"] for row in table] == [False]
    assert await cli.explain(made, {1: ["crowd"]}, table, options()) == []


async def test_a_peer_that_fails_is_left_out_and_told() -> None:
    made = bench({("node", 8): "no answer"})
    (line,) = await made.run({3: ["flood"], 8: ["flood"]}, ["moorage", "node"], 2)
    assert line == "node could not be measured with 8 replicas: no answer"
    assert {sample.server for sample in made.samples if sample.replicas == 8} == {"moorage"}
    assert made.ran.count(("node", 8)) == 1
    assert {row["name"]: "peer" in row for row in figures.rows(made.samples, "node")} == {
        "broadcast-rate": True,
        "broadcast-rate-8": False,
    }


async def test_our_own_failure_ends_the_run() -> None:
    with pytest.raises(BenchError, match="moorage, 3 replicas: no answer"):
        await bench({("moorage", 3): "no answer"}).run({3: ["flood"]}, ["moorage", "node"], 1)


async def test_a_missed_goal_is_noted_with_what_the_time_goes_into() -> None:
    made = bench()
    plan = figures.needed(["rpc-rate-64", "rpc-p50-sequential"])
    await made.run(plan, ["moorage", "node"], 1)
    table = figures.rows(made.samples, "node", ["rpc-rate-64", "rpc-p50-sequential"])
    assert [row["met"] for row in table] == [True, False]
    (told,) = await cli.explain(made, plan, table, options())
    assert told.startswith("`rpc-rate-64`: goal `ratio >= 2` missed.")
    assert told.endswith("(`profile-concurrent-3.txt`): 75% calls.py:1 call; 25% wire.py:2 encode")


async def test_met_goals_take_no_profile() -> None:
    assert (
        await cli.explain(bench(), {3: ["sequential"]}, [{"name": "rpc-rate-1", "met": True}], options())
        == []
    )


def test_wrong_arguments_are_said_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["--only", "rpc-p51", "--build", str(tmp_path)]) == 2
    assert "rpc-p51" in capsys.readouterr().err
    assert cli.main(["--servers", "ours", "--build", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == figures.all_slugs()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], str]:
    failing: dict[tuple[str, int], str] = {}

    def made(redis: Any, folder: Path, durations: Durations, say: Any) -> Scripted:
        scripted = Scripted(redis, folder, durations, say)
        scripted.failing, scripted.ran, scripted.phases = failing, [], []
        return scripted

    monkeypatch.setattr(cli, "Bench", made)
    return failing


def test_without_node_ours_stand_alone_and_the_command_is_named(
    scripted: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(servers, "node_versions", lambda: None)
    assert cli.main(["--only", "rpc-rate-64", "--quick", "--build", str(tmp_path)]) == 0
    assert "make node" in capsys.readouterr().err
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["notes"] == [servers.MISSING_NODE]
    assert content["runs"] == [
        {"name": "rpc-rate-64", "unit": "calls/s", "ours": 1.0, "better": "higher", "goal": "ratio >= 2"}
    ]


def test_a_peer_alone_overwrites_nothing(
    scripted: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(servers, "node_versions", lambda: {"node": "20"})
    assert cli.main(["--only", "rpc-rate-64", "--servers", "node", "--build", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_failure_writes_nothing(
    scripted: dict[tuple[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted["moorage", 3] = "no answer"
    assert cli.main(["--only", "rpc-rate-64", "--servers", "moorage", "--build", str(tmp_path)]) == 1
    assert "no answer" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
