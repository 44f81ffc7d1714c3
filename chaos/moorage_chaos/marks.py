"""What tells one event of a session's log from all others, whatever id it has."""

from __future__ import annotations

from typing import Any


def mark_of(type: str, data: Any) -> str | None:
    """The harness's own mark, or what the protocol puts into the first and last event of a task and into a question.
    None: nothing but its id tells it.
    """
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("mark"), str):
        return str(data["mark"])
    name = {"session_created": "taskId", "task_result": "taskId", "question": "questionId"}.get(type)
    return f"{type}:{data[name]}" if name is not None and name in data else None
