"""A worker asks while the one who could answer is cut off."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage.client import ClientError
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.logged import each_once, log_order, turns_ended
from moorage_chaos.checkers.questions import answered, asked_once
from moorage_chaos.drivers.base import Can, Setup
from moorage_chaos.faults.link import Down
from moorage_chaos.history import History
from moorage_chaos.readers import Reader, reader
from moorage_chaos.scenarios._common import together
from moorage_chaos.scenarios._logs import LOGS, Logs
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

TURNS = 20
EVERY_MS, COUNT, ASK_AT = 50, 30, 14
"""The question comes 700 ms after the begin of the turn."""


class Question(Scenario):
    name = "question"
    promise = "20 x the worker asks during a cut: asked once after the resume, the answer reaches the worker"
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"client-links"})
    setup: ClassVar[Setup | None] = LOGS
    mutants: ClassVar[tuple[str, ...]] = ("skip-replay", "lose-answer")

    async def run(self, ctx: Context) -> None:
        logs = Logs(ctx)
        lengths = [ctx.random.uniform(0.8, 3.0) for _ in range(TURNS)]
        readers = await together(self._turn(ctx, logs, length, n) for n, length in enumerate(lengths))
        await logs.finish(*readers)

    async def _turn(self, ctx: Context, logs: Logs, length: float, n: int) -> Reader:
        account, door = ctx.clients.account(), f"question-{n}"
        made = await reader(
            ctx.clients, account, await logs.session(account), door=await ctx.driver.door(door)
        )
        task = {"count": COUNT, "everyMs": EVERY_MS, "askAt": ASK_AT}
        await logs.turn(account, made, task, "chaos-turn", expect=f"answer-{n}")
        await made.until("session_created", 10.0)
        await asyncio.sleep(0.4)
        ctx.history.note("cut", client=made.name, lengthMs=length * 1000, live=made.live)
        async with ctx.faults.hold(Down(door)):
            await asyncio.sleep(length)
        await made.until("question", 20.0)
        for question in list(made.questions):
            for again in (False, True):
                await self._reply(ctx, made, str(question["questionId"]), f"answer-{n}", again)
        await made.until("task_result", 20.0)
        return made

    async def _reply(self, ctx: Context, made: Reader, question: str, answer: str, again: bool) -> None:
        value = {"session": made.session, "question": question, "answer": answer, "again": again}
        operation = ctx.history.begin("reply", process=made.name, **value)
        try:
            await made.stream.reply(question, answer)
        except ClientError as error:
            operation.fail(error=str(error))
        else:
            operation.ok()

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                reached("questions asked during a cut", TURNS - 2, "questions", _during_cuts),
                asked_once(TURNS),
                answered(TURNS),
                each_once(TURNS * COUNT),
                log_order(),
                turns_ended(TURNS),
            ),
        )


def _during_cuts(history: History) -> float:
    asked = {p.value["session"]: p.t0 for p in history.pairs("append") if p.value["type"] == "question"}
    sessions = {note.value["reader"]: note.value["session"] for note in history.notes("reader")}
    return float(
        sum(
            note.t <= asked.get(sessions[note.value["client"]], 0) <= note.t + note.value["lengthMs"] * 1e6
            for note in history.notes("cut", live=True)
        )
    )
