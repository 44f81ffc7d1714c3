"""``POST /v1/emit``: broadcast to the account's own sockets, wherever they are.

The route is described, and refuses what is wrong, by FastAPI. A request with nothing wrong does not get that far:
:class:`Shortcut` serves it, and an `ephemeral`, which waits for nothing, :class:`Direct` even before there is an ASGI
call. The usual way costs more CPU time than writing to a hundred sockets does (docs/bench.md).
"""

import logging
from collections.abc import Iterable
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage.accounts.tokens import InvalidToken, Tokens
from moorage.bugs import log_bug
from moorage.errors import BackplaneError
from moorage.http.bearer import authenticated
from moorage.http.bodies import Id, JsonObject, errors
from moorage.http.context import Broadcast, HttpContext
from moorage.http.errors import answer, backplane_answer, error_answer

log = logging.getLogger(__name__)

PATH = "/v1/emit"


class Everybody(BaseModel):
    """Every socket of the account."""

    type: Literal["all-user-authenticated-connections"]

    @property
    def target(self) -> None:
        return None


class UserScoped(BaseModel):
    """Its user interfaces."""

    type: Literal["user-scoped-only"]

    @property
    def target(self) -> None:
        return None


class Session(BaseModel):
    """Sockets scoped to that session, and the user interfaces."""

    type: Literal["all-interested-in-session"]
    sessionId: Id

    @property
    def target(self) -> str:
        return self.sessionId


class Machine(BaseModel):
    """Sockets scoped to that machine, and the user interfaces."""

    type: Literal["machine-scoped-only"]
    machineId: Id

    @property
    def target(self) -> str:
        return self.machineId


class Emit(BaseModel):
    """An `update` is numbered and recoverable, an `ephemeral` is neither."""

    event: Literal["update", "ephemeral"]
    filter: Annotated[Everybody | UserScoped | Session | Machine, Field(discriminator="type")]
    body: JsonObject
    skipSocketId: Id | None = Field(None, description="this socket gets no copy")


class Emitted(BaseModel):
    """Of an `update`; empty for an `ephemeral`."""

    id: str | None = None
    seq: int | None = Field(None, description="1, 2, 3 … within the account")


_ACCEPTED = answer({}, 202)


async def perform(updates: Broadcast, account: str, emit: Emit) -> Response:
    """Send it out. Raises :class:`~moorage.errors.BackplaneError`: an update could not be, or perhaps was."""
    to = emit.filter
    if emit.event == "ephemeral":
        updates.ephemeral(account, to.type, to.target, emit.body, emit.skipSocketId)
        return _ACCEPTED
    update_id, seq = await updates.update(account, to.type, to.target, emit.body, emit.skipSocketId)
    return answer({"id": update_id, "seq": seq}, 202)


def router(context: HttpContext) -> APIRouter:
    """The route of broadcasts."""
    routes = APIRouter(tags=["realtime"])
    Account = Annotated[str, authenticated(context.tokens)]

    @routes.post(
        PATH,
        status_code=202,
        response_model=Emitted,
        responses=errors(401, 413, 503),
        summary="Broadcast to own sockets",
    )
    async def emit(body: Emit, account: Account) -> Response:
        return await perform(context.updates, account, body)

    return routes


class Door:
    """Which requests are good: JSON, of an allowed size, with a token that proves an account now, of no browser page.

    ``max_bytes`` is the limit of a body, as :class:`~moorage.http.limits.BodyLimit` has it.
    """

    def __init__(self, tokens: Tokens, max_bytes: int) -> None:
        self._tokens, self._max_bytes = tokens, max_bytes

    def account(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """None: let the route say what is wrong, or add what a browser needs."""
        token, size, json = b"", b"", False
        for name, value in headers:
            if name == b"authorization" and not token:
                token = value
            elif name == b"content-length":
                size = value
            elif name == b"content-type":
                json = value == b"application/json"
            elif name in (b"origin", b"transfer-encoding"):
                return None
        if not (json and size.isdigit() and int(size[:20]) <= self._max_bytes and token[:7] == b"Bearer "):
            return None
        try:
            return self._tokens.verify(token[7:].decode("latin-1"))
        except InvalidToken:
            return None


class Direct:
    """Answers an `ephemeral` where its bytes arrive; see :class:`moorage.sockets.direct.Direct`."""

    def __init__(self, tokens: Tokens, updates: Broadcast, max_bytes: int) -> None:
        self.accept = Door(tokens, max_bytes).account
        self._updates = updates

    def answer(self, account: str, body: bytes) -> tuple[int, bytes] | None:
        """``(status, JSON)``; None: not ours."""
        try:
            emit = Emit.model_validate_json(body)
        except ValidationError:
            return None
        if emit.event != "ephemeral":
            return None
        to = emit.filter
        try:
            self._updates.ephemeral(account, to.type, to.target, emit.body, emit.skipSocketId)
        except Exception as error:
            log_bug(log, f"POST {PATH}", error)
            return 500, bytes(error_answer(500, "Internal error").body)
        return 202, b"{}"


class Shortcut:
    """ASGI middleware: serves a good ``POST /v1/emit`` by the same models as the route; all else goes on to it.

    Has no answer of its own for what is wrong, so that there is one place that says it.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, updates: Broadcast, max_bytes: int) -> None:
        self._app, self._door, self._updates = app, Door(tokens, max_bytes), updates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        account = self._door.account(scope["headers"])
        if account is None:
            return await self._app(scope, receive, send)
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None  # the client is gone
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        try:
            emit = Emit.model_validate_json(body)
        except ValidationError:
            return await self._app(scope, _again(body, receive), send)
        try:
            response = await perform(self._updates, account, emit)
        except BackplaneError as error:
            response = backplane_answer(error)
        await response(scope, receive, send)


def _again(body: bytes, receive: Receive) -> Receive:
    """``receive`` from the start of a request whose body was read."""
    given = False

    async def received() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received
