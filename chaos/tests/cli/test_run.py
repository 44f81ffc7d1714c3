"""``run_all.py`` as a process, over stand-in replicas and the small rows of this folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from moorage_chaos.drivers import procfs
from moorage_chaos.history import History
from moorage_chaos.saved import check
from moorage_chaos.scenarios import discover

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
END_S = 80
"""Of one run, which takes up to four seconds of a core; a test has two at most, and a look at their files."""
pytestmark = pytest.mark.timeout(180)


class Run:
    """A finished or running ``run_all.py``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = folder / "report"
        self.process: asyncio.subprocess.Process
        self.output = ""

    async def start(self, *arguments: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(HERE.parent / "drivers"), "TMPDIR": str(self.folder)}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "run_all.py"),
            *("--rows", str(HERE / "rows"), "--entry", "stand_in:main", "--report", str(self.report)),
            *arguments,
            cwd=self.folder,
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def end(self) -> int:
        async with asyncio.timeout(END_S):
            self.output = (await self.process.communicate())[0].decode()
        assert self.process.returncode is not None
        return self.process.returncode

    async def __call__(self, *arguments: str) -> int:
        await self.start(*arguments)
        return await self.end()

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.report / "run.json").read_text())
        return found

    def verdicts(self) -> dict[str, str]:
        return {row["row"]: row["verdict"] for row in self.json["rows"]}

    def left_behind(self) -> list[str]:
        return [path.name for path in self.folder.glob("moorage-chaos-*/*")]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


async def test_rows_of_two_lanes_pass_and_every_file_is_there(run: Run, tmp_path: Path) -> None:
    code = await run(
        *("--only", "t-good,t-idle,t-kills", "--seed", "5", "--replicas", "2"),
        *("--json", str(tmp_path / "out.json"), "--junit", str(tmp_path / "out.xml")),
    )
    assert code == 0, run.output
    assert run.verdicts() == {"t-good": "passed", "t-idle": "passed", "t-kills": "passed"}, run.output
    written = json.loads((tmp_path / "out.json").read_text())
    assert written == run.json
    assert (written["format"], written["seed"], written["driver"], written["replicas"]) == (1, 5, "local", 2)
    assert written["rows"][0]["counts"]["ok"] == 2
    assert written["rows"][0]["mutants"] == ["some-mutant"]
    assert {"python", "kernel"} <= set(written["versions"])
    suites = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (len(suites), suites.get("failures"), suites.get("errors")) == (3, "0", "0")
    history = History.load(run.report / "t-kills" / "history.jsonl")
    assert history.header["row"] == "t-kills"
    assert history.pairs("fault")[0].result["proof"]["exitCode"] == -9
    assert history.notes("death")[0].value["code"] == -9
    assert history.notes("alive")
    assert history.pairs("undo")[0].phase == "ok"
    assert "answers" in run.output
    assert run.left_behind() == []
    assert await run("check", str(run.report)) == 0
    assert run.output.startswith("row") or "3 passed" in run.output
    assert await run("compare", str(run.report), str(tmp_path / "out.json")) == 0


async def test_every_way_to_end_without_passing(run: Run) -> None:
    rows = ("t-breaks", "t-raises", "t-hangs", "t-bad-check", "t-impossible", "t-good")
    assert await run("--only", ",".join(rows), "--replicas", "1") == 1
    assert run.verdicts() == {
        "t-breaks": "failed",
        "t-raises": "unknown",
        "t-hangs": "unknown",
        "t-bad-check": "unknown",
        "t-impossible": "unknown",
        "t-good": "passed",
    }
    reasons = {row["row"]: row.get("reason", "") for row in run.json["rows"]}
    assert "no load" in reasons["t-raises"]
    assert "0.2 s" in reasons["t-hangs"]
    assert "ZeroDivisionError" in reasons["t-bad-check"]
    assert "fly" in reasons["t-impossible"]
    again = [result.as_json() for result in check([str(run.report)], discover(HERE / "rows"))]
    played = [row for row in run.json["rows"] if row["row"] != "t-impossible"]
    assert sorted(again, key=str) == sorted(played, key=str), "judged again from the files, as in the run"


async def test_a_harness_part_that_crashes_is_unknown_and_leaves_nothing(run: Run) -> None:
    assert await run("--only", "t-crashes,t-good,t-idle", "--replicas", "1") == 3
    assert run.verdicts() == {"t-crashes": "unknown", "t-good": "unknown", "t-idle": "passed"}
    assert "ended with -9" in run.json["rows"][0]["reason"]
    # Its warm parent saw the end of its stdin and ended all it had started; the journal still names them.
    assert await run("recover") == 0
    assert run.left_behind() == []


async def test_a_start_state_that_does_not_come_back_stops_the_run(run: Run) -> None:
    assert await run("--only", "t-unrestorable,t-good", "--replicas", "1") == 3
    first, second = run.json["rows"]
    assert first["verdict"] == second["verdict"] == "unknown"
    assert "one replica is deaf" in first["reason"]
    assert "did not come back" in second["reason"]


async def test_an_interrupt_undoes_everything_and_still_prints_the_table(run: Run) -> None:
    await run.start("--only", "t-waits,t-good", "--replicas", "1")
    file = run.report / "t-waits" / "pid"
    async with asyncio.timeout(30):
        while not (file.exists() and file.read_text()):
            await asyncio.sleep(0.05)
    pid = int(file.read_text())
    start = procfs.start_time(pid)
    assert procfs.state(pid) == "T"
    run.process.send_signal(signal.SIGINT)
    assert await run.end() == 3
    assert run.verdicts() == {"t-waits": "unknown", "t-good": "unknown"}
    assert not procfs.is_same(pid, start)
    assert "t-waits" in run.output
    history = History.load(run.report / "t-waits" / "history.jsonl")
    assert [pair.phase for pair in history.pairs("undo")] == ["ok"]
    assert run.left_behind() == []


async def test_a_server_that_does_not_start_makes_its_rows_unknown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_EXIT", "9")
    assert await run("--only", "t-good", "--replicas", "1") == 3
    assert "exit code 9" in run.json["rows"][0]["reason"]


async def test_a_list_of_faults_is_shrunk_to_the_one_it_takes_and_that_is_played_again(run: Run) -> None:
    assert await run("--only", "t-shrinks", "--replicas", "1", "--seed", "3", "--shrink") == 1
    shrunk = run.json["rows"][0]["shrunk"]
    assert (shrunk["of"], shrunk["faults"], shrunk["tries"]) == ([1, 2, 3], [3], 3)
    assert "--only t-shrinks" in shrunk["replay"]
    assert "--faults 3" in shrunk["replay"]
    assert await run("--only", "t-shrinks", "--replicas", "1", "--seed", "3", "--faults", "1,2") == 0
    left_out = History.load(run.report / "t-shrinks" / "history.jsonl").notes("fault-left-out")
    assert [note.value["number"] for note in left_out] == [3]


async def test_a_harness_that_does_nothing_is_found_out(run: Run) -> None:
    assert await run("mutants", "--only", "t-bites", "--replicas", "1") == 0, run.output
    assert run.verdicts() == {"t-bites": "passed"}, "the control"
    [found] = json.loads((run.report / "mutants.json").read_text())["mutants"]
    assert (found["mutant"], found["row"], found["verdict"], found["red"]) == (
        "ignore-fault",
        "t-bites",
        "unknown",
        True,
    )
    assert "ignore-fault" in (run.report / "report.html").read_text()
