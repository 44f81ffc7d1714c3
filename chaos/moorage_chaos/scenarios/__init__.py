"""The rows of the matrix, a file each; found by looking, so that adding a row is adding a file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from moorage_chaos.scenarios.base import Scenario


def discover() -> dict[str, type[Scenario]]:
    """Name to class of every row, in the order of the matrix: safe rows first, then by name of the file.

    Raises ValueError for two rows with one name, or a module in this folder that holds no row.
    """
    found: dict[str, type[Scenario]] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name == "base" or info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        rows = [
            item
            for _, item in inspect.getmembers(module, inspect.isclass)
            if issubclass(item, Scenario)
            and item.__module__ == module.__name__
            and not inspect.isabstract(item)
        ]
        if not rows:
            raise ValueError(f"scenarios/{info.name}.py holds no row (helpers start with an underscore)")
        for row in rows:
            if row.name in found:
                raise ValueError(f"two rows are named {row.name}")
            found[row.name] = row
    return dict(sorted(found.items(), key=lambda item: (not item[1].safe, item[1].__module__)))
