"""Processes by pod, over a made-up /proc and over real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage_chaos.node import processes
from moorage_chaos.node.__main__ import Session

UID = "0b5c9e7e-1111-4222-8333-444455556666"
CONTAINER, SANDBOX = "a" * 64, "b" * 64


def process(proc: Path, pid: int, cgroup: str, nspid: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(cgroup)
    (folder / "status").write_text(f"Name:\tx\nNSpid:\t{nspid}\n")
    (folder / "stat").write_text(f"{pid} (a b) c) S 1 1")


@pytest.fixture(params=["systemd", "cgroupfs", "cgroupfs-v1"])
def proc(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    def path(container: str) -> str:
        slice_ = UID.replace("-", "_")
        return {
            "systemd": f"0::/kubepods.slice/kubepods-burstable-pod{slice_}.slice/cri-containerd-{container}.scope\n",
            "cgroupfs": f"0::/kubepods/burstable/pod{UID}/{container}\n",
            "cgroupfs-v1": f"9:pids:/kubepods/pod{UID}/{container}\n1:cpu:/kubepods/pod{UID}/{container}\n",
        }[str(request.param)]

    process(tmp_path, 10, path(SANDBOX), "10\t1")
    process(tmp_path, 30, path(CONTAINER), "30\t1")
    process(tmp_path, 20, path(CONTAINER), "20\t17")
    process(tmp_path, 40, "0::/system.slice/ssh.service\n", "40")
    (tmp_path / "50").mkdir()
    (tmp_path / "self").mkdir()
    return tmp_path


def test_the_containers_own_process_is_the_first_of_its_namespace(proc: Path) -> None:
    assert processes.main_of(UID, CONTAINER, proc) == 30
    assert processes.any_of(UID, proc) == 10
    assert {found.pid for found in processes.of_pod(UID, proc)} == {10, 20, 30}


def test_a_pod_that_is_not_here_is_said(proc: Path) -> None:
    with pytest.raises(processes.NoProcess):
        processes.main_of(UID, "c" * 64, proc)
    with pytest.raises(processes.NoProcess):
        processes.any_of("f" * 36, proc)


def test_the_state_is_read_behind_a_name_with_brackets(proc: Path) -> None:
    assert processes.state(30, proc) == "S"
    assert processes.state(99, proc) == ""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield child
    child.kill()
    child.wait(10)


def test_sigkill_is_seen_to_its_end(sleeper: subprocess.Popen[bytes]) -> None:
    moment, fd = processes.send(sleeper.pid, signal.SIGKILL)
    try:
        assert processes.until_gone(fd) >= moment
    finally:
        os.close(fd)
    assert sleeper.wait(5) == -signal.SIGKILL


def test_sigstop_shows_and_sigcont_wakes(sleeper: subprocess.Popen[bytes]) -> None:
    os.close(processes.send(sleeper.pid, signal.SIGSTOP)[1])
    assert processes.until_state(sleeper.pid, "Tt", 10) == "T"
    os.close(processes.send(sleeper.pid, signal.SIGCONT)[1])
    assert processes.until_state(sleeper.pid, "RSDI", 10) in "RSD"


def test_a_signal_to_a_process_that_is_gone_is_an_error(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait(5)
    with pytest.raises(processes.NoProcess):
        processes.send(sleeper.pid, signal.SIGKILL)


async def test_a_session_answers_what_it_cannot_do_with_an_error() -> None:
    """As a process, the way the harness runs it: bad lines, unknown requests, and the end of stdin."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage_chaos.node", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(
        b'no json\n{"id": 1, "op": "fly"}\n{"id": 2, "op": "ping"}\n{"id": 3, "op": "signal", "pod": "x"}\n'
    )
    child.stdin.close()
    async with asyncio.timeout(10):
        lines = (await child.stdout.read()).decode().splitlines()
        assert await child.wait() == 0
    assert '"hello"' in lines[0]
    assert any('"id": null' in line and "error" in line for line in lines)
    assert any('"id": 1' in line and "fly" in line for line in lines)
    assert any('"id": 2' in line and '"t"' in line for line in lines)
    assert any('"id": 3' in line and "error" in line for line in lines)


def test_the_end_of_a_session_wakes_what_it_stopped(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [processes.Found(sleeper.pid, CONTAINER, True)]
    monkeypatch.setattr(processes, "of_pod", lambda uid, proc=processes.PROC: found if uid == UID else [])
    monkeypatch.setattr("moorage_chaos.node.network.heal", lambda pid, side=None: False)
    session = Session()
    session._signal({"pod": UID, "container": CONTAINER, "number": int(signal.SIGSTOP)})
    assert processes.state(sleeper.pid) == "T"
    session.close()
    assert processes.until_state(sleeper.pid, "RSDI", 10)
