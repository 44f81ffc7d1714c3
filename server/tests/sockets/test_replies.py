"""`reply`: answers to questions of tasks, over a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.errors import BackplaneUnavailable
from moorage.sockets.background import Background
from moorage.sockets.clients import Client, Clients
from moorage.sockets.replies import Replies
from moorage.storage.tasks import Record
from moorage.storage.tasks_memory import MemoryTasks
from moorage.tasks.queue import TaskQueue

TASK = "0" * 32
QUESTION = f"{TASK}.{'a' * 12}.1"


class World:
    def __init__(self) -> None:
        self.store, self.clients, self.background = MemoryTasks(), Clients(), Background()
        queue = TaskQueue(self.store, None, handler="h", event_max_bytes=100)  # type: ignore[arg-type]
        self.replies = Replies(self.clients, queue, self.background)
        self.clients.add(Client("acc", "user-scoped", sid="sid"))

    async def ask(self) -> None:
        await self.store.add(Record(TASK, "acc", "s", "h", b"1"))
        [ticket] = await self.store.take("w", ["h"], 1, 0, 1000)
        await self.store.begin("w", ticket, 1000, 3)
        await self.store.ask(TASK, 1, QUESTION, b"1")

    async def send(self, *args: Any) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.replies.handlers["reply"]("sid", list(args), answered.set_result)
        return await asyncio.wait_for(answered, 5)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.ask()
    return world


async def test_an_answer_is_carried_once(world: World) -> None:
    payload = {"sessionId": "s", "questionId": QUESTION, "answer": {"yes": True}}
    assert await world.send(payload) == {"ok": True}
    assert (await world.store.answers(TASK, [QUESTION])).answers == {QUESTION: b'{"yes":true}'}
    assert await world.send(payload) == {"ok": False, "error": "Question not found"}


async def test_a_null_is_an_answer(world: World) -> None:
    assert await world.send({"sessionId": "s", "questionId": QUESTION, "answer": None}) == {"ok": True}


async def test_a_frame_of_a_stream_does_the_same(world: World) -> None:
    assert await world.replies.from_stream("acc", "other", QUESTION, 1) is False
    assert await world.replies.from_stream("acc", "s", QUESTION, b"no JSON") is False
    assert await world.replies.from_stream("acc", "s", QUESTION, 1) is True


@pytest.mark.parametrize(
    "args",
    [
        (),
        (None,),
        ("x",),
        ([],),
        ({},),
        ({"sessionId": "s", "questionId": QUESTION},),
        ({"sessionId": 1, "questionId": QUESTION, "answer": 1},),
        ({"sessionId": "s", "questionId": "", "answer": 1},),
        ({"sessionId": "s", "questionId": "\ud800", "answer": 1},),
        ({"sessionId": "s", "questionId": QUESTION, "answer": b"bytes"},),
        ({"sessionId": "s", "questionId": QUESTION, "answer": "x" * 100},),
    ],
)
async def test_junk_is_answered(world: World, args: tuple[Any, ...]) -> None:
    assert await world.send(*args) == {"ok": False, "error": "Invalid parameters"}
    world.replies.handlers["reply"]("sid", list(args), None)
    world.replies.handlers["reply"]("unknown sid", list(args), None)
    assert (await world.store.answers(TASK, [QUESTION])).open == [QUESTION]


async def test_while_the_state_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> bool:
        raise BackplaneUnavailable

    monkeypatch.setattr(MemoryTasks, "answer", away)
    said = await world.send({"sessionId": "s", "questionId": QUESTION, "answer": 1})
    assert said == {"ok": False, "error": "Backplane unavailable"}


async def test_too_many_at_once(world: World) -> None:
    world.replies._background = Background(limit=0)
    said = await world.send({"sessionId": "s", "questionId": QUESTION, "answer": 1})
    assert said == {"ok": False, "error": "Too many replies in flight"}
