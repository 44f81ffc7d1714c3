"""The undo journal: what is open, what a torn file means, and that a reused pid is never touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.drivers import procfs
from moorage_chaos.faults import journal as journal_module
from moorage_chaos.faults.journal import FileJournal, journal_folder, read, recover

TAG = f"test-{os.urandom(6).hex()}"
"""Of this run alone: what else runs on the machine must not be ended."""
SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, env={**os.environ, procfs.TAG: TAG}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def abandoned(folder: Path, *records: dict[str, object], torn: bytes = b"") -> Path:
    """The journal of a harness that is dead (no process has start time 1)."""
    path = folder / "dead.jsonl"
    rows = [{"format": 1, "pid": os.getpid(), "start": 1}, *({"n": n, **r} for n, r in enumerate(records, 1))]
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows) + torn)
    return path


def test_a_closed_journal_with_nothing_open_is_gone(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    number = journal.write({"do": "cont", "pid": 1, "start": 2})
    _, records = read(journal.path)
    assert records == [{"n": number, "do": "cont", "pid": 1, "start": 2}]
    journal.done(number)
    assert read(journal.path)[1] == []
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_records_are_on_disk_at_once_and_a_living_harness_is_left_alone(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    journal.write({"do": "rmtree", "path": str(tmp_path / "moorage-chaos-x")})
    assert "left alone" in recover(tmp_path)[0]
    assert journal.path.exists()
    journal.close()
    assert journal.path.exists()


@given(st.lists(st.booleans(), max_size=20))
def test_exactly_what_is_not_done_is_open_newest_first(
    tmp_path_factory: pytest.TempPathFactory, done: list[bool]
) -> None:
    journal = FileJournal(tmp_path_factory.mktemp("j"))
    numbers = [journal.write({"do": "x", "i": i}) for i in range(len(done))]
    for number, is_done in zip(numbers, done, strict=True):
        if is_done:
            journal.done(number)
    expected = [n for n, is_done in zip(numbers, done, strict=True) if not is_done]
    assert [record["n"] for record in read(journal.path)[1]] == expected[::-1]
    journal.close()


def test_recover_wakes_and_ends_what_was_left(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    ours = tmp_path / "moorage-chaos-data"
    ours.mkdir()
    os.kill(sleeper.pid, signal.SIGSTOP)
    start = procfs.start_time(sleeper.pid)
    path = abandoned(
        tmp_path,
        {"do": "end", "tag": TAG},
        {"do": "rmtree", "path": str(ours)},
        {"do": "cont", "pid": sleeper.pid, "start": start},
        torn=b'{"n": 4, "do": "rm',
    )
    told = recover(tmp_path)
    assert told == [f"woke process {sleeper.pid}", f"removed {ours}", f"ended 1 processes [{sleeper.pid}]"]
    assert sleeper.wait(5) == -9
    assert not ours.exists()
    assert not path.exists()
    assert recover(tmp_path) == []


def test_another_process_with_that_pid_is_not_touched(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    start = procfs.start_time(sleeper.pid)
    assert not procfs.send(sleeper.pid, start + 1, signal.SIGKILL)
    abandoned(
        tmp_path, {"do": "cont", "pid": sleeper.pid, "start": start + 1}, {"do": "end", "tag": f"{TAG}-2"}
    )
    assert recover(tmp_path) == ["no process was left", f"process {sleeper.pid} is gone"]
    assert sleeper.poll() is None


def test_only_folders_of_ours_are_removed(tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.mkdir()
    abandoned(tmp_path, {"do": "rmtree", "path": str(other)}, {"do": "dance"}, {"do": "cont"})
    told = recover(tmp_path)
    assert other.exists()
    assert len(told) == 3


def test_a_file_that_is_no_journal_is_told_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\x00\xffgarbage\n[1]\n")
    assert "no journal" in recover(tmp_path)[0]
    assert path.exists()


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = journal_folder()
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        journal_folder()


def test_a_process_that_is_gone_has_no_identity() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert procfs.start_time(process.pid) == 0
    assert procfs.state(process.pid) == ""
    assert not procfs.is_same(process.pid, 0)
