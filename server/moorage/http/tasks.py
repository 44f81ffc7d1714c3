"""Tasks of a session: start one, look at the latest turn, answer its question, read how it ended."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from moorage.errors import EventTooLarge, HttpError, InvalidEvent
from moorage.http.bearer import authenticated
from moorage.http.bodies import Id, Json, errors
from moorage.http.context import HttpContext
from moorage.http.errors import TOO_LARGE, answer
from moorage.tasks.queue import QueueFull, UnknownHandler


class NewTask(BaseModel):
    """`input` is handed to the handler as it is; without `handler` the default one runs."""

    input: Json
    handler: Id | None = None


class Started(BaseModel):
    taskId: str


class Reply(BaseModel):
    """`questionId` as in the `question` event."""

    questionId: Id
    answer: Json


class Replied(BaseModel):
    success: Literal[True]


class StatusOut(BaseModel):
    """`result` of a done task, `error` of a failed one. `attempts`: more than 1 if a worker was lost."""

    status: Literal["queued", "running", "done", "failed"]
    attempts: int
    result: Any = None
    error: str | None = None


class TurnOut(StatusOut):
    """`events`: event frames, from the turn's `session_created`; what follows `lastEventId` is read as usual.
    `truncated`: earlier ones are gone. `question`: the open one."""

    taskId: str
    input: Any
    question: dict[str, Any] | None = None
    events: list[dict[str, Any]]
    lastEventId: str
    lastSeq: int
    epoch: str
    truncated: bool = Field(False, description="left out when false")


def router(context: HttpContext) -> APIRouter:
    """The routes of tasks."""
    routes = APIRouter(tags=["tasks"])
    tasks = context.tasks
    Account = Annotated[str, authenticated(context.tokens)]

    @routes.post(
        "/v1/sessions/{session_id}/tasks",
        status_code=202,
        response_model=Started,
        responses=errors(401, 404, 413, 503),
        summary="Start a task (a turn)",
    )
    async def start(session_id: str, body: NewTask, account: Account) -> Response:
        await context.require_session(account, session_id)
        try:
            task_id = await tasks.start_task(account, session_id, body.input, body.handler)
        except EventTooLarge as error:
            raise HttpError(413, TOO_LARGE, str(error)) from None
        except InvalidEvent as error:
            raise HttpError(422, "Invalid request", f"input: {error}") from None
        except UnknownHandler as error:
            raise HttpError(422, "Unknown handler", f"No worker has a handler named {error}") from None
        except QueueFull:
            raise HttpError(503, "Too many tasks") from None
        return answer({"taskId": task_id}, 202)

    @routes.get(
        "/v1/sessions/{session_id}/turn",
        response_model=TurnOut,
        responses=errors(401, 404, 503),
        summary="The latest turn, running or ended",
    )
    async def turn(session_id: str, account: Account) -> Response:
        await context.require_session(account, session_id)
        found = await tasks.turn(account, session_id)
        if found is None:
            raise HttpError(404, "Turn not found")
        return answer(found.as_json())

    @routes.post(
        "/v1/sessions/{session_id}/replies",
        status_code=202,
        response_model=Replied,
        responses=errors(401, 404, 413, 503),
        summary="Answer a question",
    )
    async def reply(session_id: str, body: Reply, account: Account) -> Response:
        await context.require_session(account, session_id)
        try:
            carried = await tasks.reply(account, session_id, body.questionId, body.answer)
        except EventTooLarge as error:
            raise HttpError(413, TOO_LARGE, str(error)) from None
        if not carried:
            raise HttpError(404, "Question not found")
        return answer({"success": True}, 202)

    @routes.get(
        "/v1/tasks/{task_id}",
        response_model=StatusOut,
        responses=errors(401, 404, 503),
        summary="The final truth about a task",
    )
    async def status(task_id: str, account: Account) -> Response:
        found = await tasks.status(account, task_id)
        if found is None:
            raise HttpError(404, "Task not found")
        return answer(found.as_json())

    return routes
