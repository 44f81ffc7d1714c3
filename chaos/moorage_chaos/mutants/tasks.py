"""Tasks that nobody takes over, that two workers run at once, whose answers are lost."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from moorage_chaos.mutants.registry import mutant, replace


@mutant("no-takeover", "a dead worker's tasks are left to it for an hour")
def no_takeover() -> None:
    os.environ["MOORAGE_TASK_TAKEOVER_MS"] = "3600000"


@mutant("zombie-worker", "a worker goes on to report for a task that another has taken over")
def zombie_worker() -> None:
    from moorage.tasks.attempts import Attempts

    async def confirm(self: Any, attempt: Any) -> None:
        return

    replace(Attempts, "confirm", confirm)
    replace(Attempts, "lose", lambda self, attempt: None)


@mutant("result-needs-log", "a task is not done before the log has taken its task_result")
def result_needs_log() -> None:
    from moorage.errors import BackplaneError
    from moorage.tasks.execution import Execution

    conclude = Execution._conclude

    async def _conclude(self: Any, task: Any, attempt: Any, outcome: Any, known: bool) -> None:
        while True:
            try:
                await self._events.head(task.session_id)
                break
            except BackplaneError:
                await asyncio.sleep(0.1)
        await conclude(self, task, attempt, outcome, known)

    replace(Execution, "_conclude", _conclude)


@mutant("lose-answer", "an answer is taken with thanks and thrown away")
def lose_answer() -> None:
    from moorage.storage.tasks_redis import RedisTasks

    async def answer(self: Any, account: str, session_id: str, question_id: str, text: bytes) -> bool:
        return True

    replace(RedisTasks, "answer", answer)
