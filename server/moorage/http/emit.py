"""``POST /v1/emit``: broadcast to the account's own sockets, wherever they are."""

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from moorage.http.bearer import authenticated
from moorage.http.bodies import Id, JsonObject, errors
from moorage.http.context import HttpContext
from moorage.http.errors import answer


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


def router(context: HttpContext) -> APIRouter:
    """The route of broadcasts."""
    routes = APIRouter(tags=["realtime"])
    updates = context.updates
    Account = Annotated[str, authenticated(context.tokens)]

    @routes.post(
        "/v1/emit",
        status_code=202,
        response_model=Emitted,
        responses=errors(401, 413, 503),
        summary="Broadcast to own sockets",
    )
    async def emit(body: Emit, account: Account) -> Response:
        to = body.filter
        if body.event == "ephemeral":
            updates.ephemeral(account, to.type, to.target, body.body, body.skipSocketId)
            return answer({}, 202)
        update_id, seq = await updates.update(account, to.type, to.target, body.body, body.skipSocketId)
        return answer({"id": update_id, "seq": seq}, 202)

    return routes
