"""The rows of the matrix, a file each; found by looking, so that adding a row is adding a file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from moorage_chaos.scenarios.base import Scenario


def discover(folder: Path | None = None) -> dict[str, type[Scenario]]:
    """Name to class of every row: safe rows first, then by name of the file. ``folder``: of more rows, outside
    of this package.

    Raises ValueError for two rows with one name, or a module in this folder that holds no row.
    """
    found: dict[str, type[Scenario]] = {}
    for module in [*_modules(__path__, f"{__name__}."), *(_modules([str(folder)], "") if folder else ())]:
        rows = [
            item
            for _, item in inspect.getmembers(module, inspect.isclass)
            if issubclass(item, Scenario)
            and item.__module__ == module.__name__
            and not inspect.isabstract(item)
        ]
        if not rows:
            raise ValueError(f"{module.__file__} holds no row (modules of helpers start with an underscore)")
        for row in rows:
            if row.name in found:
                raise ValueError(f"two rows are named {row.name}")
            found[row.name] = row
    return dict(sorted(found.items(), key=lambda item: (not item[1].safe, item[1].__module__)))


def _modules(path: Iterable[str], prefix: str) -> Iterator[ModuleType]:
    folders = list(path)
    if not prefix:
        sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    for info in pkgutil.iter_modules(folders):
        if info.name != "base" and not info.name.startswith("_"):
            yield importlib.import_module(prefix + info.name)
