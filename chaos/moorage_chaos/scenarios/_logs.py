"""What the rows of the event log share: sessions, turns, the system they run on, the end of a row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from moorage_chaos import journals
from moorage_chaos.accounts import Account
from moorage_chaos.drivers.base import DriverError, Replica, Setup
from moorage_chaos.history import Operation
from moorage_chaos.load import every, play
from moorage_chaos.marks import mark_of
from moorage_chaos.readers import Rendering, reader
from moorage_chaos.scenarios.base import Context

TASKS = {"MOORAGE_TASKS": "moorage_chaos.turns", "MOORAGE_WORKER_CONCURRENCY": "64"}
LOGS = Setup(replicas=2, workers=2, env={**TASKS, "MOORAGE_EVENT_LOG_MAXLEN": "2000"})
"""MATRIX, "Event log rows": 2 replicas, 2 workers. A log that keeps the longest turn of these rows: what a shorter one
trims is the business of `trimmed-gap`."""


class Logs:
    """Sessions of one row and the tasks in them."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.sessions: list[str] = []
        self.tasks: list[tuple[Account, str]] = []

    async def session(self, account: Account) -> str:
        """A new session. Raises DriverError."""
        tag = self.ctx.clients.name("log")
        status, body = await self.ctx.clients.request(
            "POST", "/v1/sessions", {"tag": f"{self.ctx.seed}:{tag}", "metadata": "m"}, account=account
        )
        if status != 200:
            raise DriverError(f"POST /v1/sessions answered {status} {body!r}")
        session = str(body["session"]["id"])
        self.sessions.append(session)
        return session

    async def turn(self, account: Account, reader: Rendering, input: Any, handler: str, **tags: Any) -> str:
        """Start a task through the reader's own client; its id. Raises ClientError if it was not started."""
        value = {"session": reader.session, "reader": reader.name, "handler": handler, **tags}
        return await self._started(account, reader.start_task(input, handler), value)

    async def start(self, account: Account, session: str, input: Any, handler: str) -> str:
        """The same by HTTP, for sessions whose readers are elsewhere. Raises ConnectionError, TimeoutError."""
        path = f"/v1/sessions/{session}/tasks"

        async def post() -> str:
            body = {"input": input, "handler": handler}
            status, answer = await self.ctx.clients.request("POST", path, body, account=account)
            if status != 202:
                raise ConnectionError(f"POST {path} answered {status} {answer!r}")
            return str(answer["taskId"])

        return await self._started(account, post(), {"session": session, "handler": handler})

    async def _started(
        self, account: Account, starting: Coroutine[Any, Any, str], value: dict[str, Any]
    ) -> str:
        operation = self.ctx.history.begin("turn", **value)
        try:
            task = await starting
        except Exception as error:
            operation.info(error=f"{type(error).__name__}: {error}")
            raise
        operation.ok(task=task)
        self.tasks.append((account, task))
        return task

    async def append(
        self, account: Account, session: str, data: dict[str, Any], where: Replica | None = None, **tags: Any
    ) -> Operation:
        """``POST …/events`` of one event of type ``item``; recorded, never raises for what the server does."""
        mark = mark_of("item", data)
        operation = self.ctx.history.begin("append", session=session, type="item", mark=mark, **tags)
        try:
            status, body = await self.ctx.clients.request(
                "POST",
                f"/v1/sessions/{session}/events",
                {"type": "item", "data": data},
                account=account,
                where=where,
            )
        except (ConnectionError, TimeoutError) as error:
            operation.info(error=f"{type(error).__name__}: {error}")
            return operation
        if status in (200, 201, 202) and isinstance(body, dict):
            operation.ok(status=status, id=body.get("id"), seq=body.get("seq"))
        elif status in (401, 404, 413, 422):
            operation.fail(status=status)
        else:
            operation.info(status=status)
        return operation

    async def status(self, account: Account, task: str) -> tuple[int, Any]:
        """``GET /v1/tasks/{id}``: one look."""
        return await self.ctx.clients.request("GET", f"/v1/tasks/{task}", account=account)

    async def finish(self, *readers: Rendering) -> None:
        """Note the final truth of every task, close the readers, collect the workers' journals."""

        async def look(account: Account, task: str) -> None:
            code, body = await self.status(account, task)
            known = body if code == 200 and isinstance(body, dict) else {"status": f"HTTP {code}"}
            keep: dict[str, Any] = {k: known.get(k) for k in ("status", "result", "attempts", "error")}
            self.ctx.history.note("task", task=task, **keep)

        # Nobody waits for this look: it is not to meet the moment in which all replicas hear nothing yet.
        await self.ctx.driver.wait_ready()
        await asyncio.gather(*(look(*task) for task in self.tasks))
        await asyncio.gather(*(one.close() for one in readers))
        await journals.collect(self.ctx.driver, self.ctx.history, self.sessions)


class Following:
    """Sessions that a reader on every replica follows; an event goes into one of them each 100 ms, by HTTP."""

    EVERY_MS = 100
    SESSIONS = 3
    SETTLE_S = 2.0
    """After the last event, until the last reader has it."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.logs = Logs(ctx)

    async def run(self, group: Callable[[], str], over: asyncio.Event) -> None:
        """Until ``over``; each event carries the group it was begun in."""
        clients, places = self.ctx.clients, list(self.ctx.driver.replicas)
        account = clients.account()
        sessions = [await self.logs.session(account) for _ in range(self.SESSIONS)]
        readers = [
            await reader(clients, account, session, where=place) for session in sessions for place in places
        ]

        async def append(n: int) -> None:
            session, place = sessions[n % len(sessions)], places[n % len(places)]
            data = {"mark": f"{session}:{n}"}
            await self.logs.append(account, session, data, where=place, group=group())

        await play(every(self.EVERY_MS, 120_000), append, until=over.is_set)
        await asyncio.sleep(self.SETTLE_S)
        await self.logs.finish(*readers)
