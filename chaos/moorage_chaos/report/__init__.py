"""What a run leaves behind for people. What programs read (JSON, JUnit) is in :mod:`moorage_chaos.results`.

Here live renderings of the ``--json`` object: pure functions from it to text, and :func:`write`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage_chaos.report.summary import markdown
from moorage_chaos.results import write_whole

__all__ = ["markdown", "write"]


def write(run: dict[str, Any], folder: Path) -> None:
    """Write ``summary.md`` into the folder of the report; ``run`` is the object of ``--json`` (format 1)."""
    write_whole(folder / "summary.md", markdown(run).encode())
