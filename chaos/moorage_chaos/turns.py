"""Handlers of the harness's own tasks; workers load them by ``MOORAGE_TASKS=moorage_chaos.turns``.

They use nothing but what any user's handler has. Each report carries a ``mark`` of its own, so that an event is known
again whatever id the log gave it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import moorage


@moorage.task("chaos-turn")
async def turn(task: moorage.Task, input: Any) -> Any:
    """``{"count", "everyMs", "deltas"?, "askAt"?}``: report ``count`` events, one each ``everyMs``, each preceded by
    ``deltas`` transient ones; before the event number ``askAt`` ask, and give the answer as part of the result.
    """
    loop = asyncio.get_running_loop()
    zero = loop.time()
    answer = None
    for n in range(int(input["count"])):
        # On a clock of its own: slow appends must not stretch the turn, or cuts would miss its end.
        await asyncio.sleep(max(0.0, zero + n * input["everyMs"] / 1000 - loop.time()))
        if n == input.get("askAt"):
            answer = await task.ask({"text": "go on?", "mark": f"{task.task_id}:asked"}, timeout=60.0)
        for i in range(input.get("deltas", 0)):
            await task.report("delta", {"mark": f"{task.task_id}:{n}:delta-{i}"}, transient=True)
        await task.report("item", {"mark": f"{task.task_id}:{task.attempt}:{n}"})
    return {"reported": int(input["count"]), "attempt": task.attempt, "answer": answer}


@moorage.task("chaos-steps")
async def steps(task: moorage.Task, input: Any) -> Any:
    """``{"steps", "stepMs"}``: each step reports its begin and its end under one ``key``, ``stepMs`` apart."""
    for n in range(int(input["steps"])):
        for phase in ("begun", "done"):
            mark = f"{task.task_id}:{task.attempt}:{n}:{phase}"
            data = {"mark": mark, "step": n, "phase": phase, "attempt": task.attempt}
            await task.report("step", data, key=f"step-{n}/sleep")
            if phase == "begun":
                await asyncio.sleep(input["stepMs"] / 1000)
    return {"steps": int(input["steps"]), "attempt": task.attempt}
