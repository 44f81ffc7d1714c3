"""A log line that clients can cause at will is written at most once per interval."""

from __future__ import annotations

import logging
import time


class LimitedLog:
    """Warnings, at most one per ``interval_s`` seconds; the next one tells how many were left out."""

    def __init__(self, logger: logging.Logger, interval_s: float) -> None:
        self._logger = logger
        self._interval = interval_s
        self._next = 0.0
        self._left_out = 0

    def warning(self, message: str, *args: object) -> None:
        """As :meth:`logging.Logger.warning`."""
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        self._next = now + self._interval
        suffix = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        self._left_out = 0
        self._logger.warning(message + suffix, *args)
