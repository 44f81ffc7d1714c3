"""The warm parent as a process: exit codes, signals, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage_chaos.drivers import helper, procfs
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.keeper import Child, Keeper

HERE = Path(__file__).parent
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    one = Keeper(["warmed", "not_there_at_all"])
    # A child takes its time, so that what is done to it at once finds it at its first step.
    await one.start(tmp_path / "warm.log", {**os.environ, "PYTHONPATH": str(HERE), "SLOW_FORK_S": "0.05"})
    yield one
    await one.stop()


async def entry(keeper: Keeper, name: str, log: Path, *args: object, **env: str) -> Child:
    full = {"PATH": os.environ["PATH"], **env}
    return await keeper.start_entry(f"warmed:{name}", args, ["moorage", "serve", "--x"], full, log)


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("gives", (None,), 0),
        ("gives", (4,), 4),
        ("exits", (3,), 3),
        ("exits", ("a reason",), 1),
        ("raises", (), 1),
        ("nowhere", (), 1),
    ],
)
async def test_the_exit_code_is_what_the_interpreter_would_make_it(
    keeper: Keeper, tmp_path: Path, name: str, args: tuple[object, ...], code: int
) -> None:
    child = await entry(keeper, name, tmp_path / "log", *args)
    assert await child.wait(5) == code
    assert child.gone_ns > child.started_ns
    text = (tmp_path / "log").read_text()
    assert ("Traceback" in text) is (name in ("raises", "nowhere"))
    assert ("a reason" in text) is ("a reason" in args)


async def test_it_has_the_given_environment_and_arguments_and_nothing_else(
    keeper: Keeper, tmp_path: Path
) -> None:
    child = await entry(keeper, "tells", tmp_path / "log", ONE="1")
    assert await child.wait(5) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "['moorage', 'serve', '--x']"
    assert lines[1] == "['ONE', 'PATH']"
    # 0, 1, 2 and what the listing itself opens: no pipe or log of the parent came along.
    assert lines[2] in ("0 1 2", "0 1 2 3")
    assert lines[3] == "True True"


async def test_signals_are_seen_with_code_and_time(keeper: Keeper, tmp_path: Path) -> None:
    child = await keeper.execute(SLEEP, os.environ, tmp_path / "log")
    t = await child.deliver(signal.SIGKILL)
    assert await child.wait(5) == -9
    assert child.gone_ns >= t
    with pytest.raises(DriverError, match="gone"):
        await child.deliver(signal.SIGCONT)


async def test_a_program_that_is_not_there_ends_with_1(keeper: Keeper, tmp_path: Path) -> None:
    child = await keeper.execute(["/nonexistent/program"], os.environ, tmp_path / "log")
    assert await child.wait(5) == 1
    assert "FileNotFoundError" in (tmp_path / "log").read_text()


async def test_bad_requests_are_answered(keeper: Keeper, tmp_path: Path) -> None:
    await (await entry(keeper, "gives", tmp_path / "log", 0)).wait(5)
    for op in ("nonsense", "start", "signal"):
        with pytest.raises(DriverError):
            await keeper.request(op)


async def test_a_parent_that_dies_takes_its_children_along_even_stopped_ones(
    keeper: Keeper, tmp_path: Path
) -> None:
    children = [await keeper.execute(SLEEP, os.environ, tmp_path / "log") for _ in range(2)]
    await children[0].deliver(signal.SIGSTOP)
    os.kill(keeper.pid, signal.SIGKILL)
    for child in children:
        assert await child.wait(5) == -9
        async with asyncio.timeout(5):
            while procfs.is_same(child.pid, child.start):
                await asyncio.sleep(0.01)
    with pytest.raises(DriverError):
        await keeper.execute(SLEEP, os.environ, tmp_path / "log")


async def test_a_stop_has_an_end_though_something_else_holds_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "STOP_BOUND_S", 0.2)
    pids: asyncio.Queue[int] = asyncio.Queue()
    one = helper.Helper("the one", lambda message: pids.put_nowait(message["holder"]))
    ended = asyncio.Event()
    one.on_end = ended.set
    await one.start("holding", (), tmp_path / "log", {**os.environ, "PYTHONPATH": str(HERE)})
    async with asyncio.timeout(20):
        holder = await pids.get()
        try:
            asked = asyncio.create_task(one.request("anything"))
            await asyncio.sleep(0)
            await one.stop()
            with pytest.raises(DriverError, match="it ended"):
                await asked
            assert ended.is_set()
        finally:
            os.kill(holder, signal.SIGKILL)
