"""Logging of a process: one line an event on standard output, as text or JSON; standard library and structlog alike."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(level: str, kind: str) -> None:
    """``level``: debug, info, warning or error; ``kind``: text or json. Lines leave at once."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    last: Any = (
        structlog.processors.JSONRenderer()
        if kind == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), pad_event_to=0)
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                last,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Who connected is promised by the protocol, so no level silences it.
    logging.getLogger("moorage.connections").setLevel(min(logging.INFO, root.level))
    # Their lines about connections and requests say nothing that our own do not.
    for name in (
        "uvicorn",
        "uvicorn.error",
        "uvicorn.access",
        "engineio",
        "socketio",
        "asyncio",
    ):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
