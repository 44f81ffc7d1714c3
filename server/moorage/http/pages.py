"""Static files: the JavaScript client at ``/client/moorage.js`` and, where it is enabled, the page at ``/console``."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter, Request, Response

import moorage
from moorage.http.context import HttpContext

ROOT = Path(moorage.__file__).parent
"""Read by path: importing ``moorage.client`` would bring the clients' own dependencies along."""

CLIENT = {"/client/moorage.js": "client/js/moorage.js"}

CONSOLE = {
    "/console": "console/index.html",
    "/console/console.css": "console/console.css",
    "/console/console.js": "console/console.js",
    "/console/icon.svg": "console/icon.svg",
    "/console/key.js": "console/key.js",
    "/console/list.js": "console/list.js",
}

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

SAFE = {
    "Cache-Control": "no-cache",  # asked again each time, answered with 304: pages match their replica
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def router(context: HttpContext) -> APIRouter:
    """The routes of static files. All are read now: a missing one is found at the start."""
    routes = APIRouter(include_in_schema=False)
    files = CLIENT | (CONSOLE if context.settings.console_enabled else {})
    for path, name in files.items():
        file = ROOT / name
        routes.add_api_route(
            path, _serve(file.read_bytes(), MEDIA_TYPES[file.suffix]), methods=["GET", "HEAD"]
        )
    return routes


def _serve(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = SAFE | {"ETag": tag}

    async def serve(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if tag in known:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return serve
