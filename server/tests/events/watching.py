"""Logs and readers for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson

from moorage.events.frames import Frame, Resume
from moorage.events.log import EventLog
from moorage.events.readers.base import Limits, Reader
from moorage.settings import load
from moorage.storage.backplane import Backplane

KEY = "a key of the tests, long enough to sign"
BOUND_S = 10.0


class Watcher(Reader):
    """A reader that keeps what it is sent; ``stuck`` bytes count as unsent."""

    connects = False

    def __init__(self, session_id: str, *, waits: bool = False, limits: Limits | None = None) -> None:
        self.waits = waits
        self.frames: list[dict[str, Any]] = []
        self.code: int | None = None
        self.stuck = 0
        super().__init__(session_id, limits or Limits())

    def write(self, frame: Frame) -> int:
        self.frames.append(orjson.loads(frame.json))
        return len(frame.json)

    def unsent(self) -> int:
        return self.stuck

    def close(self, code: int) -> None:
        self.code = code

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["type"] == kind]

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.of("event")

    @property
    def seqs(self) -> list[int | None]:
        return [frame["seq"] for frame in self.events]

    @property
    def data(self) -> list[Any]:
        return [frame["event"]["data"] for frame in self.events]


async def watch(
    log: EventLog, session_id: str, resume: Resume | str | None = None, *, waits: bool = False
) -> Watcher:
    """A reader that has been served: it is live."""
    reader = Watcher(session_id, waits=waits)
    async with asyncio.timeout(BOUND_S):
        await log.serve(reader, Resume(resume) if isinstance(resume, str) else resume)
    return reader


@contextlib.asynccontextmanager
async def running(
    url: str | None, name: str = "a", *, readers: bool = True, timeout_ms: int = 2000, **settings: Any
) -> AsyncIterator[EventLog]:
    """A log with a backplane of its own, as a replica or (``readers=False``) a worker has it."""
    loaded = load(redis_url=url, secret_key=KEY, replica_id=name, **settings)
    backplane = Backplane(url, name=name, timeout_ms=timeout_ms, stall_ms=100) if url else None
    log = EventLog(backplane, loaded, readers=readers)
    await log.start()
    if backplane is not None:
        assert await backplane.start()
    try:
        yield log
    finally:
        await log.stop()
        if backplane is not None:
            await backplane.stop()
