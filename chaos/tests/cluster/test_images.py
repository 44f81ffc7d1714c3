"""What is in the images that `run_all.py --driver kubernetes --deploy` builds."""

from __future__ import annotations

import subprocess
import uuid

import pytest

from moorage_chaos.deploy.images import HARNESS, OPERATOR, SERVER, Image, tag

NAMESPACE = "moorage-chaos"
RUN_S = 60

# Imports what a start imports, and prints each source that had to be compiled for it.
STARTS = """
import importlib.machinery as machinery
load = machinery.SourceFileLoader.source_to_code
def told(self, data, path, **options):
    print("compiled", path)
    return load(self, data, path, **options)
machinery.SourceFileLoader.source_to_code = told
import {modules}
print("started")
"""


@pytest.mark.parametrize(
    ("image", "modules"),
    [
        (SERVER, "moorage.serve, moorage.worker"),
        (OPERATOR, "moorage_operator.cli"),
        (HARNESS, "moorage.serve, moorage_chaos.worker, moorage_chaos.cli"),
    ],
    ids=lambda value: value.name if isinstance(value, Image) else "",
)
def test_a_start_compiles_nothing(image: Image, modules: str) -> None:
    """Nobody may write where it runs, so that whatever lacks its bytecode is compiled at every start."""
    name = f"starts-{uuid.uuid4().hex[:8]}"
    code = STARTS.format(modules=modules)
    run = ["run", name, f"--image=localhost/{tag(image)}", "--image-pull-policy=Never", "--restart=Never"]
    # Not --attach: the output of a pod that ends before that is lost.
    kubectl(*run, "--command", "--", "python3", "-c", code)
    try:
        kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", f"--timeout={RUN_S}s")
        assert kubectl("logs", name).splitlines() == ["started"]
    finally:
        kubectl("delete", "pod", name, "--wait=false")


def kubectl(*words: str) -> str:
    command = ["kubectl", "-n", NAMESPACE, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
