"""Images, tagged by what goes into them: the same sources have the same tag, so nothing is built or loaded twice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from moorage_chaos.deploy.commands import ROOT


@dataclass(frozen=True)
class Image:
    """``sources``: files and folders, from the root of the repository, that the Dockerfile copies."""

    name: str
    dockerfile: str
    sources: tuple[str, ...]
    arguments: dict[str, str] = field(default_factory=dict)


LOCKED = ("pyproject.toml", "requirements.lock")
SERVER = Image("moorage-server", "server/Dockerfile", (*LOCKED, "server/moorage"))
OPERATOR = Image("moorage-operator", "operator/Dockerfile", (*LOCKED, "operator/moorage_operator"))
NODE = Image(
    "moorage-chaos-node",
    "chaos/node/Dockerfile",
    ("chaos/moorage_chaos/__init__.py", "chaos/moorage_chaos/node"),
)
HARNESS = Image(
    "moorage-chaos",
    "chaos/Dockerfile",
    (
        *LOCKED,
        "server/moorage",
        "chaos/moorage_chaos",
        "chaos/node",
        "manifests",
        "run_all.py",
        "operator/tests/bad_specs.yaml",
    ),
)
"""The harness, and a server under record: workers that write down what they report, mutants."""
ALL = (SERVER, OPERATOR, NODE, HARNESS)


def files(image: Image, root: Path = ROOT) -> list[Path]:
    """What the tag depends on, sorted; Python's caches do not count."""
    found = [root / image.dockerfile, root / f"{image.dockerfile}.dockerignore"]
    for source in image.sources:
        path = root / source
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sorted(path for path in found if "__pycache__" not in path.parts and path.exists())


def tag(image: Image, root: Path = ROOT) -> str:
    """``name:0123456789ab``. Raises OSError if a source cannot be read."""
    digest = hashlib.sha256()
    for path in files(image, root):
        name = path.relative_to(root).as_posix().encode()
        digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"{image.name}:{digest.hexdigest()[:12]}"
