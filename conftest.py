"""One tree of tests a run: each is a package named ``tests``, and two packages of one name cannot be loaded at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long one example takes says something of the machine: a neighbour that stops it for 200 ms is no failure.
settings.register_profile("moorage", deadline=None)
settings.load_profile("moorage")

TREES = ("server", "operator", "chaos")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a mixed run with a sentence instead of import errors."""
    root = config.rootpath
    named = {
        path.relative_to(root).parts[0]
        for argument in config.args
        if (path := Path(config.invocation_params.dir, argument.split("::")[0]).resolve()).is_relative_to(
            root
        )
        and path != root
    }
    if len(named & set(TREES)) > 1:
        raise pytest.UsageError(
            "`make test` runs all; pytest takes one of server/tests, operator/tests, chaos/tests"
        )
