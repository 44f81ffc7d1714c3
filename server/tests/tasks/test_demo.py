"""The demo: the same input tells the same story, and no input breaks it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.tasks.demo import Script, demo, parse
from moorage.tasks.handlers import TaskFailed
from moorage.tasks.questions import QuestionTimeout

from .world import ACCOUNT, SESSION, World, ended, events

Report = tuple[str, Any, str | None, bool]


class Listener:
    """Stands in for a task: keeps what is reported."""

    attempt = 1

    def __init__(self, answer: Any = None) -> None:
        self.reports: list[Report] = []
        self.answer = answer

    async def report(self, type: str, data: Any, *, key: str | None = None, transient: bool = False) -> None:
        self.reports.append((type, data, key, transient))

    async def ask(self, question: Any, timeout: float) -> Any:
        self.reports.append(("question", question, None, False))
        if self.answer is None:
            raise QuestionTimeout
        return self.answer


async def play(input: Any, answer: Any = None) -> tuple[list[Report], Any]:
    listener = Listener(answer)
    result = await demo(listener, input)  # type: ignore[arg-type]
    return listener.reports, result


async def test_one_seed_is_one_story() -> None:
    script = {"steps": 6, "pauseMs": 0, "seed": 7, "deltas": 3}
    assert await play(script) == await play(script)
    assert await play(script) != await play({**script, "seed": 8})


async def test_it_thinks_calls_tools_writes_and_asks() -> None:
    reports, result = await play({"steps": 2, "pauseMs": 0, "deltas": 3, "question": True}, answer="yes")
    kinds = [kind for kind, _, _, _ in reports]
    step = ["thought", "tool_call", "tool_result", "item_preview"]
    assert kinds == [*step, "question", *step, *["text_delta"] * 3, "text"]
    assert [transient for *_, transient in reports] == [kind == "text_delta" for kind in kinds]
    assert (result["steps"], result["answer"]) == (2, "yes")
    text = "".join(data["text"] for kind, data, _, _ in reports if kind == "text_delta")
    assert text.strip() == result["text"]
    keys = [key for kind, _, key, transient in reports if kind != "question" and not transient]
    assert len(set(keys)) == len(keys)


async def test_unanswered_it_goes_on() -> None:
    reports, result = await play({"steps": 0, "pauseMs": 0, "question": "well?"})
    assert result["answer"] is None
    assert reports[0][:2] == ("question", {"text": "well?", "options": ["yes", "no"]})


async def test_it_fails_when_told_to() -> None:
    with pytest.raises(TaskFailed, match="out of paint"):
        await play({"steps": 1, "pauseMs": 0, "fail": "out of paint"})


async def test_marks_tell_every_report() -> None:
    reports, _ = await play({"steps": 3, "pauseMs": 0, "deltas": 2, "mark": "m"})
    marks = [data["mark"] for _, data, _, _ in reports]
    assert marks == [f"m:1:{number}" for number in range(len(reports))]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(
    ["prompt", "steps", "pauseMs", "deltas", "seed", "question", "questionTimeoutMs", "fail", "mark"]
)


@given(json_values | st.dictionaries(fields, json_values | st.integers(0, 10) | st.text(max_size=5)))
def test_any_input_is_a_script_or_a_clear_refusal(value: Any) -> None:
    refused, script = None, Script()
    try:
        script = parse(value)
    except TaskFailed as error:
        refused = str(error)
    assert refused is None or refused.startswith("input: ")
    assert 0 <= script.steps <= 1000
    assert 0 <= script.pause_ms <= 60_000


async def test_it_runs_as_a_task() -> None:
    world = World()
    try:
        queue, log = await world.queue(), await world.log()
        await world.worker({"demo": demo})
        script = {"steps": 1, "pauseMs": 0, "deltas": 2}
        task_id = await queue.start_task(ACCOUNT, SESSION, script, "demo")
        assert (await ended(queue, task_id))["status"] == "done"
        kinds = [kind for kind, _ in await events(log)]
        step = ["thought", "tool_call", "tool_result", "item_preview"]
        assert kinds == ["session_created", *step, "text", "task_result"]
        bad = await queue.start_task(ACCOUNT, SESSION, {"steps": -1}, "demo")
        error = "input: steps must be a whole number from 0 to 1000"
        assert await ended(queue, bad) == {"status": "failed", "attempts": 1, "error": error}
    finally:
        await world.close()
