"""How an unexpected exception is logged: type and place, never its text, which may hold what a client sent."""

from __future__ import annotations

import logging


def log_bug(log: logging.Logger, what: str, error: BaseException) -> None:
    """One line such as ``storing a message failed: KeyError in RedisState.add_message:123``."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = f"{last.tb_frame.f_code.co_qualname}:{last.tb_lineno}" if last else "?"
    log.error("%s failed: %s in %s", what, type(error).__name__, place)
