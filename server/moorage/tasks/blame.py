"""What a worker's log says of a handler that failed: for its author to debug, without what users sent.

The text of an exception may hold anything that came with a task. So it is told only of our own errors, whose texts hold
none of it; of others the type and the place, and the whole traceback at log level ``debug``.
"""

from __future__ import annotations

import os
import traceback

from moorage.errors import MoorageError
from moorage.tasks.handlers import Handler, TaskFailed

GROUP_MAX = 3
"""So many exceptions of a group are described."""


class Ended(Exception):
    """Stands for an exception that would mean something else outside of a handler; ``__cause__`` is that."""


def real(error: BaseException) -> BaseException:
    """What a handler raised."""
    return error.__cause__ if isinstance(error, Ended) and error.__cause__ is not None else error


def describe(error: BaseException, handler: Handler) -> str:
    """``EventTooLarge: 70008 bytes of data, 65536 are allowed, at huge (mytasks.py:39), raised in make_event:103``:
    type, text if it is ours, last place in the handler's own module, place where it was raised."""
    if isinstance(error, BaseExceptionGroup):
        inner = [describe(one, handler) for one in error.exceptions[:GROUP_MAX]]
        return f"{type(error).__name__} of {len(error.exceptions)}: {'; '.join(inner)}"
    text = type(error).__name__
    if isinstance(error, MoorageError) and not isinstance(error, TaskFailed):
        text += f": {error}"
    places = list(traceback.walk_tb(error.__traceback__))
    module = getattr(handler, "__module__", None)
    own = [place for place in places if place[0].f_globals.get("__name__") == module]
    if own:
        frame, line = own[-1]
        text += f", at {frame.f_code.co_qualname} ({os.path.basename(frame.f_code.co_filename)}:{line})"
    if places and places[-1] not in own[-1:]:
        frame, line = places[-1]
        text += f", raised in {frame.f_code.co_qualname}:{line}"
    return text
