"""moorage.js: its own tests under Node's test runner, and its ledger held against the Python one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import moorage

from .log_histories import ACTIONS, History

HERE = Path(__file__).parent / "js"
MODULE = Path(moorage.__file__).parent / "client" / "js" / "moorage.js"
BOUND_S = 50

pytestmark = pytest.mark.node


def node(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    executable = shutil.which("node")
    if executable is None:
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse("Node.js is missing: apt-get install nodejs")
        raise AssertionError
    env = os.environ | {"MOORAGE_JS": MODULE.as_uri()}
    return subprocess.run(
        [executable, *arguments],
        cwd=HERE,
        env=env,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        **options,
    )


@pytest.mark.parametrize("name", ["client", "stream"])
def test_under_node(name: str) -> None:
    ran = node("--test", f"{name}.test.mjs")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "# fail 0" in ran.stdout


def test_its_ledger_does_what_the_python_one_does() -> None:
    histories: list[list[dict[str, Any]]] = []

    @settings(max_examples=200, database=None, suppress_health_check=list(HealthCheck))
    @given(ACTIONS)
    def play(actions: list[str]) -> None:
        history = History()
        history.play(actions)
        history.finish()
        histories.append(history.reader.steps)

    play()
    ran = node("replay_histories.mjs", input=json.dumps(histories))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_it_is_one_module_without_dependencies() -> None:
    lines = MODULE.read_text().splitlines()
    assert [line for line in lines if line.lstrip().startswith(("import ", "import{", "await import"))] == []
