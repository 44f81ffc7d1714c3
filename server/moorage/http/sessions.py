"""Sessions of an account and their messages. Another account's session is as unknown as one that never was."""

import logging
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from moorage.errors import BackplaneError, HttpError
from moorage.http.bearer import authenticated
from moorage.http.bodies import Json, Tag, errors
from moorage.http.context import HttpContext
from moorage.http.errors import answer

log = logging.getLogger(__name__)

LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
"""Messages of one page. Pages are bounded in bytes too: storage.state.PAGE_MAX_BYTES."""

SEQ_MAX = 2**53
"""Largest integer that a JavaScript number holds exactly."""


class NewSession(BaseModel):
    """`tag` is the client's own name: the same tag is the same session."""

    tag: Tag
    metadata: Json = None


class SessionOut(BaseModel):
    """`seq`: order of creation within the account. Times are epoch milliseconds."""

    id: str
    tag: str
    seq: int
    metadata: Any
    active: bool
    createdAt: int
    updatedAt: int


class OneSession(BaseModel):
    session: SessionOut


class SessionList(BaseModel):
    """Newest first."""

    sessions: list[SessionOut]


class MessageOut(BaseModel):
    """`seq`: 1, 2, 3 … within the session."""

    id: str
    seq: int
    content: Any
    localId: str | None
    createdAt: int


class MessagePage(BaseModel):
    """In order of `seq`; with `hasMore`, ask again after the last one."""

    messages: list[MessageOut]
    hasMore: bool


class Done(BaseModel):
    success: Literal[True]


def _unknown() -> HttpError:
    return HttpError(404, "Session not found")


def router(context: HttpContext) -> APIRouter:
    """The routes of sessions and messages."""
    routes = APIRouter(tags=["sessions"])
    state, updates = context.state, context.updates
    Account = Annotated[str, authenticated(context.tokens)]

    async def tell(account: str, body: dict[str, Any]) -> None:
        """What is stored is the truth. An announcement that fails now, though the backplane was there a moment
        ago, would not be repeated by a client's second attempt either, so it is logged and not an error."""
        try:
            await updates.update(account, "user-scoped-only", None, body)
        except BackplaneError as error:
            log.warning("update %s not sent: %s", body["t"], type(error).__name__)

    @routes.post(
        "/v1/sessions",
        response_model=OneSession,
        responses=errors(401, 413, 503),
        summary="Create a session, or get the one with that tag",
    )
    async def create(body: NewSession, account: Account) -> Response:
        updates.require()
        session, created = await state.create_session(account, body.tag, body.metadata)
        if created:
            await tell(account, {"t": "new-session", **session.as_json()})
        return answer({"session": session.as_json()})

    @routes.get(
        "/v1/sessions", response_model=SessionList, responses=errors(401, 503), summary="All, newest first"
    )
    async def all_sessions(account: Account) -> Response:
        sessions = await state.list_sessions(account)
        return answer({"sessions": [session.as_json() for session in sessions]})

    @routes.delete(
        "/v1/sessions/{session_id}",
        response_model=Done,
        responses=errors(401, 404, 503),
        summary="Remove a session with its messages, its tasks and its event log",
    )
    async def delete(session_id: str, account: Account) -> Response:
        updates.require()
        # First: a failure here leaves a session that can be deleted again.
        await context.tasks.forget(account, session_id)
        if not await state.delete_session(account, session_id):
            raise _unknown()
        await context.events.delete(session_id)
        await tell(account, {"t": "delete-session", "sid": session_id})
        return answer({"success": True})

    @routes.get(
        "/v1/sessions/{session_id}/messages",
        response_model=MessagePage,
        responses=errors(401, 404, 503),
        summary="A page of a session's messages",
    )
    async def messages(
        session_id: str,
        account: Account,
        after_seq: Annotated[int, Query(ge=0, le=SEQ_MAX, description="the last `seq` you have")] = 0,
        limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    ) -> Response:
        page = await state.list_messages(account, session_id, after_seq, limit)
        if page is None:
            raise _unknown()
        return answer({"messages": [message.as_json() for message in page[0]], "hasMore": page[1]})

    return routes
