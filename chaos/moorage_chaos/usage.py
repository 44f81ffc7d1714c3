"""Wrong usage of the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

USAGE_ERROR = 2
"""Exit code (MATRIX, "Verdicts")."""


class UsageError(Exception):
    """Exit code 2, with the reason."""


def check_names(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises UsageError for the first name that is not known."""
    everything = sorted(known)
    for name in names:
        if name not in everything:
            near = difflib.get_close_matches(name, everything, n=3, cutoff=0.4)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UsageError(f"there is no {what} {name!r}{hint}\nknown: {', '.join(everything)}")
