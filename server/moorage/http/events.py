"""The event log over HTTP: append, read a page, read as Server-Sent Events."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from moorage.errors import EventTooLarge, HttpError, InvalidEvent
from moorage.events.frames import KEY_MAX, RESERVED_TYPES, TYPE_MAX, Resume
from moorage.events.log import EventLog, SessionDeleted
from moorage.events.readers.base import Limits
from moorage.events.readers.sse import SseReader
from moorage.http.bearer import authenticated
from moorage.http.bodies import Json, errors
from moorage.http.context import HttpContext
from moorage.http.errors import TOO_LARGE, answer

LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
"""Events of one page. Pages are bounded in bytes too: events.store.PAGE_MAX_BYTES."""

LAST_WORDS_S = 2.0
"""[s] For the end of a response to get out, when its reader was ended for being slow; then it is cut."""


class NewEvent(BaseModel):
    """`key` ("step/tool") marks a re-run of the same step; a `transient` event is pushed and not kept."""

    type: Annotated[str, Field(min_length=1, max_length=TYPE_MAX)]
    data: Json
    key: Annotated[str | None, Field(min_length=1, max_length=KEY_MAX)] = None
    transient: bool = False


class AppendedOut(BaseModel):
    """Both null: the event was transient, or the log is down and it went out without being kept."""

    id: str | None = Field(examples=["1760000000000-0"])
    seq: int | None = Field(description="1, 2, 3 … within the session")


class EventPage(BaseModel):
    """`events`: frames as on the stream. `gap`: the `replay_gap` frame; then `events` is empty."""

    events: list[dict[str, Any]]
    next: str | None = Field(description="`after` of the next page; null at the end")
    gap: dict[str, Any] | None = None


def router(context: HttpContext) -> APIRouter:
    """The routes of a session's event log."""
    routes = APIRouter(tags=["events"])
    log = context.events
    limits = Limits.of(context.settings)
    Account = Annotated[str, authenticated(context.tokens)]

    @routes.post(
        "/v1/sessions/{session_id}/events",
        response_model=AppendedOut,
        responses=errors(401, 404, 413, 503),
        summary="Append an event",
    )
    async def append(session_id: str, body: NewEvent, account: Account) -> Response:
        if body.type in RESERVED_TYPES:
            raise HttpError(422, "Invalid request", f"type: {body.type} is reserved")
        await context.require_session(account, session_id)
        try:
            appended = await log.append(
                session_id, body.type, body.data, key=body.key, transient=body.transient
            )
        except EventTooLarge as error:
            raise HttpError(413, TOO_LARGE, str(error)) from None
        except InvalidEvent as error:
            raise HttpError(422, "Invalid request", str(error)) from None
        return answer({"id": appended.id, "seq": appended.seq})

    @routes.get(
        "/v1/sessions/{session_id}/events",
        response_model=EventPage,
        responses=errors(401, 404, 503),
        summary="A page of the log, or with `Accept: text/event-stream` the log from there on",
    )
    async def read(
        request: Request,
        session_id: str,
        account: Account,
        after: Annotated[str | None, Query(description="the last `id` you have; 0-0: the beginning")] = None,
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
        last_event_id: Annotated[str | None, Header(description="where an event stream stopped")] = None,
    ) -> Response:
        await context.require_session(account, session_id)
        if _wants_stream(request):
            resume = None if after is None else Resume(after)
            if last_event_id is not None:
                resume = Resume.from_sse(last_event_id)
            return EventStream(log, session_id, limits, resume)
        try:
            page = await log.page(session_id, "0-0" if after is None else after, limit)
        except SessionDeleted:
            raise HttpError(404, "Session not found") from None
        content: dict[str, Any] = {"events": page.events, "next": page.next}
        if page.gap is not None:
            content["gap"] = page.gap
        return answer(content)

    return routes


def _wants_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "").lower()
    return any(part.partition(";")[0].strip() == "text/event-stream" for part in accepted.split(","))


class EventStream(Response):
    """A log as Server-Sent Events, until the client leaves or its reader is ended."""

    media_type = "text/event-stream"

    def __init__(self, log: EventLog, session_id: str, limits: Limits, resume: Resume | None) -> None:
        # X-Accel-Buffering: nginx would else keep events until it has some kilobytes.
        super().__init__(headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._log = log
        self._session_id = session_id
        self._limits = limits
        self._resume = resume

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = SseReader(self._session_id, self._limits, resumes=self._resume is not None)
        ended = asyncio.Event()
        reader.on_end.append(lambda reader: ended.set())
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._log.serve(reader, self._resume))
            watching = tasks.create_task(_gone(reader, receive))
            sending = tasks.create_task(self._send(reader, send))
            try:
                await ended.wait()
                await asyncio.wait([sending], timeout=LAST_WORDS_S)
                if not sending.done() and (abort := scope.get("moorage.abort")) is not None:
                    abort()
                    await asyncio.wait([sending], timeout=LAST_WORDS_S)
            finally:
                reader.end(None)
                for task in (serving, watching, sending):
                    task.cancel()

    async def _send(self, reader: SseReader, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in reader.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(reader: SseReader, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end(None)
