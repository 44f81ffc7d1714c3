"""Ask a process over HTTP: small, bounded, without a client library, so that asking costs nothing to speak
of."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

MAX_BYTES = 4 << 20
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


async def get(url: str, *, timeout_s: float) -> tuple[int, bytes]:
    """``(status, body)`` of a GET with ``Connection: close``.

    Raises OSError (refused, reset), TimeoutError, ValueError (not HTTP, or more than :data:`MAX_BYTES`).
    """
    parts = urlsplit(url)
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=MAX_BYTES)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            answer = await reader.read(MAX_BYTES)
            while more := await reader.read(MAX_BYTES):
                answer += more
                if len(answer) > MAX_BYTES:
                    raise ValueError(f"{url}: more than {MAX_BYTES} bytes")
        finally:
            writer.close()
    top, _, body = answer.partition(b"\r\n\r\n")
    first, *fields = top.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"{url}: no HTTP answer")
    if any(field.lower().replace(b" ", b"") == b"transfer-encoding:chunked" for field in fields):
        body = _unchunk(body)
    return int(words[1]), body


def _unchunk(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size.split(b";")[0] or b"0", 16)
        if count == 0:
            break
        parts.append(body[:count])
        body = body[count + 2 :]
    return b"".join(parts)


def sums(text: str) -> dict[str, float]:
    """Metric name -> sum over its labels, of a Prometheus text page. Lines that are no samples are left
    out."""
    found: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        try:
            found[name] = found.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return found
