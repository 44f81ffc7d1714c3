"""``GET /v1/presence``: is a user interface of the account active?"""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from moorage.errors import PresenceUnknown
from moorage.http.bearer import authenticated
from moorage.http.bodies import errors
from moorage.http.context import HttpContext
from moorage.http.errors import answer


class PresenceOut(BaseModel):
    active: bool | None = Field(description="null: nobody active was found, but a replica did not answer")


def router(context: HttpContext) -> APIRouter:
    """The route of presence."""
    routes = APIRouter(tags=["realtime"])
    Account = Annotated[str, authenticated(context.tokens)]

    @routes.get("/v1/presence", response_model=PresenceOut, responses=errors(401), summary="Who is looking")
    async def presence(account: Account) -> Response:
        try:
            active: bool | None = await context.presence(account)
        except PresenceUnknown:
            active = None
        return answer({"active": active})

    return routes
