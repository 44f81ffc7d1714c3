"""``demo``: a task that plays an agent. It thinks, calls tools, writes, asks and answers; nothing of it is real.

Input: a text (the prompt), or an object, every field optional::

    {"prompt": "…", "steps": 4, "pauseMs": 250, "deltas": 8, "seed": 1,
     "question": true | "text", "questionTimeoutMs": 120000, "fail": "text", "mark": "text"}

``steps`` tools are called, one after the other; ``pauseMs`` lies between reports on average; ``deltas`` pieces of text
follow, transient; ``question`` is asked in the middle; with ``fail`` the task fails with that text in the end. ``seed``
decides on every word and pause, so the same input tells the same story. With ``mark`` each report carries a text of
its own, ``<mark>:<attempt>:<number>``, by which a test tells it from all others.
Result: ``{"text", "steps", "answer"?}``.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from moorage.tasks.context import Task
from moorage.tasks.handlers import TaskFailed, task
from moorage.tasks.questions import QuestionTimeout

STEPS_MAX, PAUSE_MAX_MS, DELTAS_MAX, TEXT_MAX = 1000, 60_000, 1000, 2000
"""Anybody with a token can start it, so it stays small."""

TOOLS = {
    "search": ("harbour depth tables", "3 documents found"),
    "read_file": ("notes/tides.md", "214 lines"),
    "calculate": ("draft + clearance", "4.2 m"),
    "fetch_weather": ("next six hours", "wind 5, backing north"),
    "edit_file": ("plan.md", "12 lines changed"),
}
THOUGHTS = (
    "I should check what is known before I decide.",
    "That fits together; one more look will do.",
    "Two sources disagree, so I compare them.",
    "Nothing speaks against it so far.",
)
WORDS = (
    "the",
    "berth",
    "is",
    "free",
    "from",
    "noon",
    "and",
    "the",
    "tide",
    "allows",
    "half",
    "a",
    "metre",
    "to",
    "spare",
)


@dataclass(frozen=True, slots=True)
class Script:
    """The input, checked."""

    prompt: str = "Find a berth"
    steps: int = 4
    pause_ms: int = 250
    deltas: int = 8
    seed: int = 1
    question: str | None = None
    question_timeout_ms: int = 120_000
    fail: str | None = None
    mark: str | None = None


DEFAULT = Script()


def parse(value: Any) -> Script:
    """Raises TaskFailed that names the field."""
    if value is None or isinstance(value, str):
        return Script(prompt=_text("prompt", value or DEFAULT.prompt))
    if not isinstance(value, dict):
        raise TaskFailed("input: a text or an object")
    question = value.get("question")
    if isinstance(question, bool):
        question = "Shall I take the berth nearest to the gate?" if question else None
    texts = {name: value.get(name) for name in ("fail", "mark")} | {"question": question}
    return Script(
        prompt=_text("prompt", value.get("prompt", DEFAULT.prompt)),
        steps=_number(value, "steps", DEFAULT.steps, 0, STEPS_MAX),
        pause_ms=_number(value, "pauseMs", DEFAULT.pause_ms, 0, PAUSE_MAX_MS),
        deltas=_number(value, "deltas", DEFAULT.deltas, 0, DELTAS_MAX),
        seed=_number(value, "seed", DEFAULT.seed, -(2**53), 2**53),
        question_timeout_ms=_number(value, "questionTimeoutMs", DEFAULT.question_timeout_ms, 1, 86_400_000),
        **{name: None if text is None else _text(name, text) for name, text in texts.items()},
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise TaskFailed(f"input: {name} must be a text of at most {TEXT_MAX} characters")
    return value


def _number(value: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    number = value.get(name, default)
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise TaskFailed(f"input: {name} must be a whole number from {least} to {most}")
    return number


class Play:
    """One performance."""

    def __init__(self, task: Task, script: Script) -> None:
        self._task, self._script = task, script
        self._random = random.Random(script.seed)
        self._told = 0

    async def tell(self, type: str, data: dict[str, Any], key: str, *, transient: bool = False) -> None:
        """Pause, then report."""
        pause = self._script.pause_ms / 1000 * self._random.uniform(0.5, 1.5)
        await asyncio.sleep(pause)
        if self._script.mark is not None:
            data = {**data, "mark": f"{self._script.mark}:{self._task.attempt}:{self._told}"}
        self._told += 1
        await self._task.report(type, data, key=key, transient=transient)

    async def step(self, number: int) -> None:
        """Think, call a tool, show what came of it."""
        name = self._random.choice(list(TOOLS))
        arguments, result = TOOLS[name]
        call = f"step-{number}/{name}"
        await self.tell("thought", {"text": self._random.choice(THOUGHTS)}, f"step-{number}/thought")
        await self.tell("tool_call", {"tool": name, "arguments": arguments, "step": number}, f"{call}/call")
        await self.tell("tool_result", {"tool": name, "result": result, "step": number}, f"{call}/result")
        preview = {"title": f"{name}: {arguments}", "detail": result}
        await self.tell("item_preview", preview, f"step-{number}/preview")

    async def ask(self, question: str) -> Any:
        """The answer, or None when nobody gave one."""
        try:
            return await self._task.ask(
                {"text": question, "options": ["yes", "no"]}, timeout=self._script.question_timeout_ms / 1000
            )
        except QuestionTimeout:
            await self.tell("thought", {"text": "Nobody answers; I go on without."}, "question/unanswered")
            return None

    async def write(self) -> str:
        """The closing text, piece by piece."""
        pieces = []
        for number in range(self._script.deltas):
            pieces.append(WORDS[(self._script.seed + number) % len(WORDS)])
            await self.tell("text_delta", {"text": pieces[-1] + " "}, "text", transient=True)
        return " ".join(pieces) or "Done"


@task("demo")
async def demo(task: Task, input: Any) -> dict[str, Any]:
    """See the module."""
    script = parse(input)
    play = Play(task, script)
    result: dict[str, Any] = {"steps": script.steps}
    for number in range(1, script.steps + 1):
        if script.question is not None and number == script.steps // 2 + 1:
            result["answer"] = await play.ask(script.question)
        await play.step(number)
    if script.question is not None and "answer" not in result:
        result["answer"] = await play.ask(script.question)
    text = await play.write()
    await play.tell("text", {"text": text}, "text")
    if script.fail is not None:
        raise TaskFailed(script.fail)
    return {"text": text, **result}
