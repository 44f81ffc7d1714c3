"""Values between Python, JSON and msgpack, by JavaScript's rules. No I/O."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import msgspec

INT64_MAX = (1 << 63) - 1


def well_formed(text: str) -> str:
    """``text`` with lone surrogates replaced by U+FFFD, as a JavaScript engine does when it writes UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def portable(value: Any, *, binary: bool) -> Any:
    """A copy that every JSON and msgpack library takes.

    Lone surrogates are replaced, keys become strings, integers beyond 64 bits floats, dates ISO strings; without
    ``binary`` (JSON) NaN and infinity are null. Raises :class:`ValueError` for nesting without end and for
    integers that no float holds; other types pass unchanged, for the encoder to judge.
    """
    try:
        return _portable(value, binary)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except OverflowError:
        raise ValueError("integer too large") from None


def _portable(value: Any, binary: bool) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, int):
        return value if -INT64_MAX <= value <= INT64_MAX else float(value)
    if isinstance(value, float):
        return value if binary or math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key): _portable(item, binary) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_portable(item, binary) for item in value]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat().replace("+00:00", "Z")
    return value


def _key(key: Any) -> str:
    if isinstance(key, str):
        return well_formed(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, (int, float)):
        return str(key)
    raise TypeError(f"{type(key).__name__} cannot be a key")


def without_dates(value: Any) -> Any:
    """``value`` with each date as the string that ``Date.toISOString`` gives; lists and dicts change in place."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (datetime, list, dict, msgspec.Struct)):
                value[index] = without_dates(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, (datetime, list, dict)):
                value[key] = without_dates(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            setattr(value, name, without_dates(getattr(value, name)))
    return value
