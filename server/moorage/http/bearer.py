"""The account behind a request's ``Authorization: Bearer`` header."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from moorage.accounts.tokens import InvalidToken, Tokens
from moorage.errors import HttpError

scheme = HTTPBearer(auto_error=False, description="A token from `POST /v1/auth`")


def authenticated(tokens: Tokens) -> Any:
    """A dependency that gives the account. Raises HttpError 401 ``Missing authorization header`` or
    ``Invalid token``."""

    async def account(
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(scheme)],
    ) -> str:
        if credentials is None:
            raise HttpError(401, "Missing authorization header")
        try:
            return await tokens.verify_or_fetch(credentials.credentials)
        except InvalidToken:
            raise HttpError(401, "Invalid token") from None

    dependency: Callable[..., Awaitable[str]] = account
    return Depends(dependency)
