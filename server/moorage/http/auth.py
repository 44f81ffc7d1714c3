"""``POST /v1/auth``: a signature for a token."""

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from moorage.accounts.signin import verify_signin
from moorage.http.bodies import Base64, errors
from moorage.http.context import HttpContext
from moorage.http.errors import answer


class SignIn(BaseModel):
    """All three in base64."""

    publicKey: Base64 = Field(description="Ed25519 public key, 32 bytes: the account")
    challenge: Base64 = Field(description="what was signed")
    signature: Base64 = Field(description="detached signature of the challenge's bytes")


class SignedIn(BaseModel):
    """The token goes into `Authorization: Bearer` and into the Socket.IO handshake."""

    success: Literal[True]
    token: str


def router(context: HttpContext) -> APIRouter:
    """The routes of signing in."""
    routes = APIRouter(tags=["accounts"])
    max_age_ms = context.settings.auth_challenge_max_age_ms

    @routes.post("/v1/auth", response_model=SignedIn, responses=errors(401), summary="Sign in by key")
    async def sign_in(body: SignIn) -> Response:
        account = verify_signin(body.publicKey, body.challenge, body.signature, max_age_ms=max_age_ms)
        return answer({"success": True, "token": context.tokens.issue(account)})

    return routes
