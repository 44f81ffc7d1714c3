"""`moorage worker` as processes: killed, told to end, wrongly configured; beside a replica that has no part in it."""

from __future__ import annotations

import asyncio
import signal

import pytest

from moorage.cli import main

from ..processes import STARTED_S
from ..valkey import Valkey, free_port
from .processes import process
from .world import ACCOUNT, SECRET, SESSION, World, ended, events


async def test_a_killed_worker_and_one_that_is_told_to_end(valkey: Valkey) -> None:
    world = World(valkey.url)
    try:
        queue, log = await world.queue(), await world.log()
        async with process(valkey.url) as first:
            # The question keeps it from ending before the kill.
            script = {"steps": 4, "pauseMs": 30, "question": True}
            task_id = await queue.start_task(ACCOUNT, SESSION, script, "demo")
            asked = next(data for kind, data in await events(log, "question") if kind == "question")
            first.kill()
            await first.wait()
            assert await queue.reply(ACCOUNT, SESSION, asked["questionId"], "yes")
        async with process(valkey.url) as second:
            assert (await ended(queue, task_id))["attempts"] == 2
            found = await events(log)
            assert [kind for kind, _ in found].count("session_created") == 1
            assert [kind for kind, _ in found].count("task_result") == 1
            long_id = await queue.start_task(ACCOUNT, "session-2", {"steps": 1000, "pauseMs": 50}, "demo")
            async with asyncio.timeout(STARTED_S):
                while (await queue.status(ACCOUNT, long_id)).status != "running":  # type: ignore[union-attr]
                    await asyncio.sleep(0.01)
            second.send_signal(signal.SIGTERM)
            out, _ = await asyncio.wait_for(second.communicate(), STARTED_S)
            assert second.returncode == 0, out.decode()
            assert f"task {long_id}: handed back" in out.decode()
            status = await queue.status(ACCOUNT, long_id)
            assert status is not None
            assert status.status == "queued"
    finally:
        await world.close()


async def test_it_starts_and_ends_without_redis() -> None:
    async with process(f"redis://127.0.0.1:{free_port()}", MOORAGE_DRAIN_MS="0") as worker:
        worker.send_signal(signal.SIGTERM)
        out, _ = await asyncio.wait_for(worker.communicate(), STARTED_S)
        assert worker.returncode == 0, out.decode()
        assert "Traceback" not in out.decode()


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"REDIS_URL": ""}, "REDIS_URL"),
        ({"MOORAGE_TASKS": "no.such.module"}, "no.such.module"),
        ({"MOORAGE_TASK_TAKEOVER_MS": "200"}, "MOORAGE_TASK_TAKEOVER_MS"),
    ],
)
def test_bad_configuration_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], env: dict[str, str], named: str
) -> None:
    monkeypatch.setenv("SECRET_KEY", SECRET)
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("METRICS_ENABLED", "false")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main(["worker"]) == 2
    assert named in capsys.readouterr().err


def test_list_and_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert main(["worker", "--list"]) == 0
    assert "demo" in capsys.readouterr().out.split()
    with pytest.raises(SystemExit) as end:
        main(["worker", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("@moorage.task", "MOORAGE_TASKS", "SIGTERM", "exit codes:"))
