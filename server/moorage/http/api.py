"""The HTTP API as one ASGI application."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from moorage.http import auth, emit, errors, events, health, pages, presence, sessions, tasks
from moorage.http.context import HttpContext
from moorage.http.limits import BodyLimit

DESCRIPTION = """
Sessions, messages and broadcasts of one account. Sign in with an Ed25519 key, then send the token as
`Authorization: Bearer …`. Realtime clients connect by Socket.IO with the same token.
"""

TAGS = [
    {"name": "accounts", "description": "Signing in"},
    {"name": "sessions", "description": "Sessions and their messages"},
    {"name": "events", "description": "The event log of a session: append, read, follow"},
    {"name": "tasks", "description": "Work of a session that workers do"},
    {"name": "realtime", "description": "Broadcast to connected sockets, and who is there"},
    {"name": "probes", "description": "For Kubernetes"},
]


def build_api(context: HttpContext) -> FastAPI:
    """All routes over ``context``; ``/openapi.json`` and ``/docs`` describe them."""
    app = FastAPI(
        title="Moorage",
        description=DESCRIPTION,
        version=_version(),
        openapi_tags=TAGS,
        redoc_url=None,
        redirect_slashes=False,
    )
    # The innermost: errors, limits and CORS hold for it as for a route.
    app.add_middleware(
        emit.Shortcut,
        tokens=context.tokens,
        updates=context.updates,
        max_bytes=context.settings.max_payload_bytes,
    )
    errors.install(app)
    for part in (auth, sessions, events, emit, presence, health, pages, tasks):
        app.include_router(part.router(context))
    app.add_middleware(BodyLimit, max_bytes=context.settings.max_payload_bytes)
    # Added last, so it is the outermost: errors are readable from other origins too.
    app.add_middleware(
        CORSMiddleware,
        allow_origins=context.settings.cors_allowed_origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
        max_age=86_400,
    )
    return app


def _version() -> str:
    try:
        return version("moorage")
    except PackageNotFoundError:  # run from a source tree
        return "0"
