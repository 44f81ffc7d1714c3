"""Load processes of our own beside the row's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

END_S = 5.0
"""A process that does not end this long after its pipe was closed is killed."""


@asynccontextmanager
async def child(module: str, *argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run ``python -m module argv`` with pipes on stdin and stdout; gone at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
    )
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
