"""The handlers that users register with ``@moorage.task("name")``, and their loading."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from moorage.errors import ConfigurationError, MoorageError

if TYPE_CHECKING:
    from moorage.tasks.context import Task

Handler = Callable[["Task", Any], Awaitable[Any]]
"""``async def handler(task, input)``; what it returns is the task's result and must be representable as JSON."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of handlers: they become part of a key in Redis and of log lines."""


class TaskFailed(MoorageError):
    """Raised by a handler: the task ends as failed with this text, which the account sees. Of any other exception
    it sees the type only."""


class HandBack(MoorageError):
    """Raised by a handler whose worker is :attr:`~moorage.tasks.context.Task.stopping`: another worker shall begin
    the task anew."""


_registered: dict[str, Handler] = {}

H = TypeVar("H", bound=Handler)


def task(name: str) -> Callable[[H], H]:
    """Register an ``async def handler(task: Task, input: Any)`` under ``name``.

    Raises ValueError for a bad name or one that another function has, TypeError for what is no coroutine function.
    """
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise ValueError(
            f"a task's name is 1 to 64 letters, digits, dots, dashes and underscores, not {name!r}"
        )

    def register(handler: H) -> H:
        accepted: Callable[..., object] = handler
        if not inspect.iscoroutinefunction(accepted):
            raise TypeError(f"the handler of task {name!r} must be an `async def`")
        known = _registered.get(name)
        if known is not None and _place(known) != _place(handler):
            raise ValueError(f"two handlers are named {name!r}: {_place(known)} and {_place(handler)}")
        _registered[name] = handler
        return handler

    return register


def _place(handler: Handler) -> str:
    return f"{handler.__module__}.{getattr(handler, '__qualname__', '?')}"


def load(modules: Sequence[str]) -> Mapping[str, Handler]:
    """Import ``modules``; all handlers registered by then. The working directory is searched last.

    Raises :class:`~moorage.errors.ConfigurationError` that names ``MOORAGE_TASKS``, the module and what is wrong.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigurationError(f"MOORAGE_TASKS: {module}: {type(error).__name__}: {error}") from error
    if not _registered:
        raise ConfigurationError(
            f"MOORAGE_TASKS: no handler is registered by {', '.join(modules) or 'nothing'}"
        )
    return dict(_registered)
