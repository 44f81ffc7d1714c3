from __future__ import annotations

import subprocess
import sys

import pytest

from moorage_chaos.mutants import NAMES
from moorage_chaos.mutants.__main__ import listing
from moorage_chaos.scenarios import discover

ROWS = discover()


def test_every_row_names_a_mutant_that_exists() -> None:
    for name, row in ROWS.items():
        # Rows of the operator alone: the mutants break servers, and there it is not the server that promises.
        assert row.mutants or "cluster" in row.needs, name
        assert set(row.mutants) <= set(NAMES), name


def test_every_mutant_belongs_to_a_row() -> None:
    used = {mutant for row in ROWS.values() for mutant in row.mutants}
    assert used == set(NAMES)


FORKS = """
import os, sys
import moorage.cli
from moorage_chaos.mutants import NAMES, run

for name in NAMES:
    child = os.fork()
    if child == 0:
        sys.stdout = open(os.devnull, "w")
        os._exit(run(name, ["settings"]))
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} does not fit the server")
"""


@pytest.mark.timeout(180)  # of seven seconds of work
def test_patches_fit_the_server() -> None:
    """Each in a process of its own: it finds what it breaks, and the command line still works."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(f"MUTANT {name}: {sentence}" in done.stderr for name, sentence in NAMES.items())


def test_unknown_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moorage_chaos.mutants", "nonsense"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_the_listing_names_every_mutant_with_its_rows() -> None:
    page = listing()
    assert all(name in page for name in NAMES)
    assert "red: \n" not in page
