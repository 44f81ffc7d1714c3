"""docs/tasks.md: its handler runs, and its names are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage import settings
from moorage.tasks import handlers

from .world import ACCOUNT, SESSION, World, ended, events

PAGE = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()


async def test_the_handler_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_registered", {})
    [block] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/tasks.md", "exec"), {"__name__": "docs_tasks"})
    world = World()
    try:
        queue, log = await world.queue(), await world.log()
        await world.worker(dict(handlers._registered))
        task_id = await queue.start_task(ACCOUNT, SESSION, {"text": "…"}, "summarise")
        question = next(data for kind, data in await events(log, "question") if kind == "question")
        assert await queue.reply(ACCOUNT, SESSION, question["questionId"], "two lines")
        result = (await ended(queue, task_id))["result"]
        assert result == {"summary": "short and good", "size": "two lines"}
    finally:
        await world.close()


def test_its_variables_exist() -> None:
    known = {name for name, _, _ in settings.table()}
    assert set(re.findall(r"\bMOORAGE_[A-Z_]+", PAGE)) <= known
