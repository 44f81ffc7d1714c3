"""A worker under record, and the handlers that it runs."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

import moorage
from moorage import settings
from moorage.errors import InvalidEvent
from moorage.events.log import EventLog
from moorage_chaos import turns
from moorage_chaos.history import History
from moorage_chaos.journals import add
from moorage_chaos.worker import PREFIX, record


async def test_each_append_is_told_before_and_after(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(EventLog, "append", EventLog.append)  # put back at the end
    monkeypatch.setenv("MOORAGE_REPLICA_ID", "w1")
    record()
    log = EventLog(None, settings.load())
    made = await log.append("s", "item", {"mark": "m1"}, key="k")
    await log.append("s", "delta", {"mark": "m2"}, transient=True)
    with pytest.raises(InvalidEvent):
        await log.append("s", "item", {"mark": object()})
    await log.stop()
    lines = [
        line.removeprefix(PREFIX) for line in capfd.readouterr().out.splitlines() if line.startswith(PREFIX)
    ]
    assert [orjson.loads(line)["phase"] for line in lines] == [
        "invoke",
        "ok",
        "invoke",
        "ok",
        "invoke",
        "fail",
    ]
    history = History()
    add(history, lines, frozenset({"s"}))
    one, two, three = history.pairs("append")
    assert (one.value["mark"], one.value["key"], one.value["worker"], one.result["id"]) == (
        "m1",
        "k",
        "w1",
        made.id,
    )
    assert (two.value["transient"], two.result["id"]) == (True, None)
    assert three.phase == "fail"


class Handed:
    """What a handler gets, recording."""

    def __init__(self, answer: Any = None) -> None:
        self.task_id, self.attempt = "t", 2
        self.told: list[tuple[str, Any, str | None, bool]] = []
        self.answer = answer

    async def report(self, type: str, data: Any, *, key: str | None = None, transient: bool = False) -> None:
        self.told.append((type, data, key, transient))

    async def ask(self, question: Any, timeout: float) -> Any:
        self.told.append(("asked", question, None, False))
        return self.answer


def handed(answer: Any = None) -> tuple[Handed, moorage.Task]:
    made = Handed(answer)
    return made, cast(moorage.Task, cast(Any, made))


async def test_a_turn_reports_marks_of_its_own_and_asks_where_it_is_told() -> None:
    seen, task = handed("yes")
    result = await turns.turn(task, {"count": 3, "everyMs": 0, "deltas": 1, "askAt": 1})
    assert result == {"reported": 3, "attempt": 2, "answer": "yes"}
    assert [told[0] for told in seen.told] == ["delta", "item", "asked", "delta", "item", "delta", "item"]
    marks = [told[1]["mark"] for told in seen.told if told[0] != "asked"]
    assert len(set(marks)) == len(marks)


async def test_steps_carry_one_key_each() -> None:
    seen, task = handed()
    assert await turns.steps(task, {"steps": 2, "stepMs": 0}) == {"steps": 2, "attempt": 2}
    assert [told[2] for told in seen.told] == ["step-0/sleep"] * 2 + ["step-1/sleep"] * 2
    assert [told[1]["phase"] for told in seen.told] == ["begun", "done"] * 2
