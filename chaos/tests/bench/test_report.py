"""bench.json, the table, and that files are written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.bench import machine, report

RUNS: list[dict[str, Any]] = [
    {
        "name": "rpc-rate-64",
        "unit": "calls/s",
        "ours": 12345.0,
        "peer": 5000.0,
        "peerName": "node 20.1.0, socket.io 4.8.4",
        "ratio": 2.469,
        "better": "higher",
        "goal": "ratio >= 2",
        "met": True,
    },
    {
        "name": "rpc-cost-8-over-2",
        "unit": "x",
        "ours": 1.5,
        "better": "lower",
        "goal": "ours <= 1.2",
        "met": False,
    },
    {"name": "broadcast-rate", "unit": "deliveries/s", "ours": 0.25, "better": "higher"},
]
LOAD = {"rounds": 3, "phaseSeconds": 2.0, "clientShare": {"moorage flood": 0.4}}


def content(notes: list[str] | None = None) -> dict[str, Any]:
    return report.document(machine.describe(None, "valkey 9"), RUNS, LOAD, notes or [])


def test_the_document_has_the_published_shape() -> None:
    made = json.loads(json.dumps(content()))
    assert made["format"] == 1
    assert made["runs"] == RUNS
    assert {"cores", "memoryMb", "kernel", "loadAverageBefore", "versions", "node", "redis"} <= made[
        "machine"
    ].keys()
    assert made["machine"]["versions"]["python"].startswith("3.")
    assert len(made["machine"]["loadAverageBefore"]) == 3


def test_the_table_shows_every_row_and_says_what_was_missed() -> None:
    lines = report.table(RUNS).splitlines()
    assert lines[0] == "| name | unit | ours | peer | ratio | better | goal | met |"
    assert lines[2] == "| rpc-rate-64 | calls/s | 12,345 | 5,000 | 2.469 | higher | ratio >= 2 | yes |"
    assert lines[3] == "| rpc-cost-8-over-2 | x | 1.5 |  |  | lower | ours <= 1.2 | **no** |"
    assert lines[4] == "| broadcast-rate | deliveries/s | 0.25 |  |  | higher |  |  |"
    assert {line.count("|") for line in lines} == {9}


def test_the_page_names_the_peer_and_carries_the_notes() -> None:
    page = report.markdown(content(["`rpc-cost-8-over-2`: 40% beats"]))
    assert "Peer: node 20.1.0, socket.io 4.8.4." in page
    assert "- `rpc-cost-8-over-2`: 40% beats" in page
    assert "## Notes" not in report.markdown(content())


def test_both_files_are_written(tmp_path: Path) -> None:
    made = content()
    report.save(made, tmp_path / "build")
    assert json.loads((tmp_path / "build" / "bench.json").read_text()) == made
    assert (tmp_path / "build" / "bench.md").read_text() == report.markdown(made)
    assert len(list((tmp_path / "build").iterdir())) == 2


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        report.write_whole(target, "new \ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_who_reads_while_it_is_written_reads_the_old_file_whole(tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    report.write_whole(target, "old and long")
    with target.open() as reader:
        report.write_whole(target, "new")
        assert reader.read() == "old and long"
    assert target.read_text() == "new"
