"""What a run leaves behind: one offline page and a summary for people, JUnit XML for CI.

Here live renderings of the ``--json`` object and of the histories beside it: pure functions from them to text, and
:func:`write`. Nothing here judges: verdicts are taken as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage_chaos.report.data import of_run
from moorage_chaos.report.junit import junit
from moorage_chaos.report.page import html
from moorage_chaos.report.summary import markdown
from moorage_chaos.results import write_whole

__all__ = ["PAGE", "junit", "markdown", "write"]

PAGE = "report.html"


def write(run: dict[str, Any], folder: Path) -> None:
    """Write the page and ``summary.md`` into the folder of the report, where the histories are; ``run`` is the object
    of ``--json`` (format 1)."""
    write_whole(folder / "summary.md", markdown(run).encode())
    write_whole(folder / PAGE, html(of_run(run, folder)).encode())
