"""JUnit XML: a suite per row, a test case per promise."""

from __future__ import annotations

from collections import Counter
from itertools import chain, count
from typing import Any
from xml.etree import ElementTree as xml

from moorage_chaos.report.replay import only

KINDS = {"failed": "failure", "unknown": "error"}
"""Child element of a case that did not pass."""


def junit(run: dict[str, Any]) -> bytes:
    """The XML for a ``--json`` object. A row that made no promise has one case, named ``played``.

    A promise takes no time of its own: the first case of a suite carries the seconds of the row, so that sums are
    right.
    """
    root = xml.Element("testsuites", name=_printable(f"moorage chaos, seed {run['seed']}"))
    totals: Counter[str] = Counter()
    for row in run["rows"]:
        promises = row["promises"] or [
            {"name": "played", "bar": "", "measured": None, "unit": "", "verdict": row["verdict"]}
        ]
        counts = Counter(promise["verdict"] for promise in promises)
        suite = xml.SubElement(
            root,
            "testsuite",
            name=_printable(row["row"]),
            tests=str(len(promises)),
            failures=str(counts["failed"]),
            errors=str(counts["unknown"]),
            skipped="0",
            time=f"{row['seconds']:.3f}",
            timestamp=run["startedAt"],
        )
        _cases(suite, run, row, promises)
        totals += Counter(tests=len(promises), failures=counts["failed"], errors=counts["unknown"])
    root.attrib |= {key: str(totals[key]) for key in ("tests", "failures", "errors")}
    body: bytes = xml.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body


def _cases(
    suite: xml.Element, run: dict[str, Any], row: dict[str, Any], promises: list[dict[str, Any]]
) -> None:
    names: set[str] = set()
    for number, promise in enumerate(promises):
        name = _new_name(_printable(promise["name"]), names)
        case = xml.SubElement(
            suite,
            "testcase",
            classname=_printable(f"chaos.{run['driver']}.{row['row']}"),
            name=name,
            time=f"{row['seconds'] if number == 0 else 0.0:.3f}",
        )
        measured = f"{promise['measured']} {promise['unit']} (bar {promise['bar']})"
        why = promise.get("why") or (row.get("reason", "") if not row["promises"] else "")
        text = _printable(f"{measured}{f', {why}' if why else ''}")
        if promise["verdict"] in KINDS:
            found = xml.SubElement(case, KINDS[promise["verdict"]], type=promise["verdict"], message=text)
            found.text = _printable(f"{text}\n{only(run.get('replay', ''), row['row'])}".rstrip())
        else:
            xml.SubElement(case, "system-out").text = text


def _new_name(name: str, names: set[str]) -> str:
    """Readers of JUnit take two cases of one name for one: the second is ``name (2)``."""
    tried = chain([name], (f"{name} ({n})" for n in count(2)))
    found = next(one for one in tried if one not in names)
    names.add(found)
    return found


def _printable(text: str) -> str:
    """Without the control characters that XML 1.0 cannot hold."""
    return "".join(
        c for c in text if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe")
    )
