"""Registering handlers, and loading the modules that do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.errors import ConfigurationError
from moorage.tasks import handlers
from moorage.tasks.context import Task


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_registered", {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_names_of_the_package_are_the_handlers_own() -> None:
    assert moorage.task is handlers.task
    assert moorage.Task is Task
    with pytest.raises(AttributeError, match="nothing"):
        moorage.nothing  # noqa: B018


def test_a_module_of_the_working_directory_is_loaded(folder: Path) -> None:
    (folder / "my_tasks.py").write_text(
        "import moorage\n\n@moorage.task('sum')\nasync def total(task, input):\n    return sum(input)\n"
    )
    assert list(handlers.load(["my_tasks"])) == ["sum"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("x = 1", "no handler is registered"),
        ("import moorage\n@moorage.task('x')\ndef f(task, input): ...", "async def"),
    ],
)
def test_a_module_that_cannot_be_used_is_named(folder: Path, text: str, said: str) -> None:
    (folder / "bad_tasks.py").write_text(text)
    with pytest.raises(ConfigurationError, match="MOORAGE_TASKS") as caught:
        handlers.load(["bad_tasks"])
    assert said in str(caught.value)
    assert "bad_tasks" in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ü", "x" * 65, "-x", None, 1])
def test_bad_names_are_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="a task's name"):
        handlers.task(name)


def test_one_name_is_one_handler() -> None:
    async def one(task: Any, input: Any) -> None: ...

    async def two(task: Any, input: Any) -> None: ...

    assert handlers.task("x")(one) is one
    handlers.task("x")(one)
    with pytest.raises(ValueError, match="two handlers are named 'x'"):
        handlers.task("x")(two)
