"""One offline HTML page: no file beside it, no request to anywhere."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from moorage_chaos.report.replay import only
from moorage_chaos.verdict import merge

CHARTED = ("seconds", "bands", "lanes", "calls", "copies", "clients")
"""What the page's script needs of a history; all else is in tables."""


def html(run: dict[str, Any]) -> str:
    """The page for what :func:`moorage_chaos.report.data.of_run` returns."""
    environment = Environment(
        loader=PackageLoader("moorage_chaos.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = [_row(row, run.get("replay", "")) for row in run["rows"]]
    script = _file("vendor/uPlot.iife.min.js")
    version = re.search(r"\(v([\d.]+)\)|v([\d.]+)", script[:400])
    return environment.get_template("report.html.j2").render(
        run={"mutant": None, "replay": "", **run, "rows": rows},
        verdict=merge(row["verdict"] for row in rows),
        verdicts={
            name: sum(row["verdict"] == name for row in rows) for name in ("passed", "failed", "unknown")
        },
        promises=sum(len(row["promises"]) for row in rows),
        kept=sum(row["kept"] for row in rows),
        operations=sum(sum(row["counts"].values()) for row in rows),
        charts=_embedded({row["row"]: _charted(row["history"]) for row in rows if row["history"]}),
        uplot_js=Markup(script),
        uplot_css=Markup(_file("vendor/uPlot.min.css")),
        uplot_version=next(filter(None, version.groups()), "") if version else "",
        js=Markup(_file("page/report.js")),
        css=Markup(_file("page/report.css")),
    )


def _file(name: str) -> str:
    return resources.files("moorage_chaos.report").joinpath(name).read_text()


def _embedded(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def _charted(history: dict[str, Any]) -> dict[str, Any]:
    return {name: history[name] for name in CHARTED}


def _row(row: dict[str, Any], replay: str) -> dict[str, Any]:
    promises = [{"why": "", **promise, "fraction": fraction(promise)} for promise in row["promises"]]
    return {
        "trouble": "",
        "reason": "",
        "shrunk": None,
        **row,
        "promise": row.get("promise", ""),
        "promises": promises,
        "kept": sum(promise["verdict"] == "passed" for promise in promises),
        "figure": deciding(row),
        "anchor": "row-" + re.sub(r"[^A-Za-z0-9_-]", "-", row["row"]),
        "replay": only(replay, row["row"]),
    }


def deciding(row: dict[str, Any]) -> dict[str, Any] | None:
    """The promise to name in the overview: the first that was not kept as the verdict says, else the first that is
    timed."""
    same = [promise for promise in row["promises"] if promise["verdict"] == row["verdict"]]
    if row["verdict"] != "passed":
        return next(iter(same), None)
    return next((promise for promise in same if promise["unit"] == "ms"), None)


def fraction(promise: dict[str, Any]) -> float | None:
    """How much of its bar a figure takes, 0..1 (``<= 50`` and ``12`` -> 0.24; ``70/70`` and ``69/70`` -> 0.99); None
    where that says nothing."""
    bar, measured = str(promise["bar"]), promise["measured"]
    part = re.fullmatch(r"(\d+)/(\d+)", str(measured))
    if part and int(part[2]):
        return min(1.0, int(part[1]) / int(part[2]))
    limit = re.fullmatch(r"<= ([\d.]+)", bar)
    if limit and float(limit[1]) > 0 and isinstance(measured, (int, float)):
        return min(1.0, max(0.0, measured / float(limit[1])))
    return None
