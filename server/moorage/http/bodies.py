"""Types of request fields, with their bounds, and the error shape for the OpenAPI page."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from moorage.storage.state import plain


def _normal(value: Any) -> Any:
    return orjson.loads(plain(value))


Json = Annotated[Any, AfterValidator(_normal)]
"""Any JSON value that can be stored and sent on; NaN and infinities become null."""

JsonObject = Annotated[dict[str, Any], AfterValidator(_normal)]

Id = Annotated[str, StringConstraints(min_length=1, max_length=256)]
"""A session, machine or socket id."""

Tag = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""The client's own name of a session."""

Base64 = Annotated[str, StringConstraints(max_length=16_384)]
"""Keys and signatures have less than 100 characters; a challenge is the client's, but no document."""


class Error(BaseModel):
    """Every error of the API."""

    error: str
    message: str | None = None
    statusCode: int = Field(examples=[404])


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of the errors that a route answers with; 422 is there always."""
    return {status: {"model": Error} for status in (*statuses, 422)}
