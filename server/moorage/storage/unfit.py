"""Where in a value there is something that JSON cannot hold. Only looked for once it is known that there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

DEPTH_MAX = 254
"""Nesting that orjson writes."""

NAME_MAX = 40
"""Characters of a key that is shown; longer ones, and what is no identifier, may be anything that somebody sent."""


def unfit(value: Any, name: str) -> str:
    """``<name>.items[3]: set``: the first such place and what is there. Without a name and at the top, only what."""
    path, depth = name, 0
    while (
        found := next(((step, child) for step, child in _children(value) if not _fits(child)), None)
    ) is not None:
        if depth == DEPTH_MAX:
            return f"{name}: a circle, or nested too deep" if name else "a circle, or nested too deep"
        step, value = found
        path, depth = path + step, depth + 1
    path = path.removeprefix(".")
    return f"{path}: {_kind(value)}" if path else _kind(value)


def _fits(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except (TypeError, RecursionError):
        return False
    return True


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, child in value.items():
            shown = isinstance(key, str) and key.isidentifier() and len(key) <= NAME_MAX
            yield f".{key}" if shown else "[…]", child
    elif isinstance(value, list | tuple):
        for number, child in enumerate(value):
            yield f"[{number}]", child


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text with a lone surrogate"
    if type(value) is int:
        return "integer beyond 64 bits"
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"dict with a key of type {type(key).__name__}"
            if not _fits(key):
                return "dict whose key is text with a lone surrogate"
    if isinstance(value, dict | list | tuple):
        return "nested too deep"
    return type(value).__name__
