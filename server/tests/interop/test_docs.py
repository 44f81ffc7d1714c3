"""docs/interop.md names tests that exist, and leaves none of the 48 failures out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "server" / "tests"
PAGE = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
FAILURES = 48


def test_every_failure_has_a_row() -> None:
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, FAILURES + 1))


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > FAILURES
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(
            rf"^\s*(async )?def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert missing == []


def test_every_test_of_a_failure_is_named() -> None:
    written = {
        f"interop/{path.name}::{name}"
        for path in Path(__file__).parent.glob("test_*.py")
        for name in re.findall(
            r"^(?:async )?def (test_failure_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert {
        f"{file}::{name}" for file, name in re.findall(r"`([\w/]+\.py)::(test_failure_\w+)`", PAGE)
    } == written
