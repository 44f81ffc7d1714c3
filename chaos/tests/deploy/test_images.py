"""Tags by content: what a tag depends on, and that the lists of sources are those of the Dockerfiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage_chaos.deploy import images
from moorage_chaos.deploy.commands import ROOT
from moorage_chaos.deploy.images import Image


@pytest.fixture
def small(tmp_path: Path) -> Image:
    (tmp_path / "a" / "__pycache__").mkdir(parents=True)
    (tmp_path / "a" / "one.py").write_text("1")
    (tmp_path / "a" / "__pycache__" / "one.pyc").write_text("cache")
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    return Image("small", "Dockerfile", ("a",))


def test_the_same_sources_have_the_same_tag_and_others_another(small: Image, tmp_path: Path) -> None:
    first = images.tag(small, tmp_path)
    assert re.fullmatch(r"small:[0-9a-f]{12}", first)
    (tmp_path / "a" / "__pycache__" / "one.pyc").write_text("other cache")
    assert images.tag(small, tmp_path) == first
    (tmp_path / "a" / "one.py").write_text("2")
    second = images.tag(small, tmp_path)
    (tmp_path / "Dockerfile").write_text("FROM other")
    assert len({first, second, images.tag(small, tmp_path)}) == 3


def test_a_file_that_moves_is_another_image(small: Image, tmp_path: Path) -> None:
    first = images.tag(small, tmp_path)
    (tmp_path / "a" / "one.py").rename(tmp_path / "a" / "two.py")
    assert images.tag(small, tmp_path) != first


@pytest.mark.parametrize("image", images.ALL, ids=lambda image: image.name)
def test_everything_a_dockerfile_copies_is_in_its_tag(image: Image) -> None:
    """Else a change would not be built: the tag of before would be found on the nodes."""
    copied = set()
    for line in (ROOT / image.dockerfile).read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied.update(word.rstrip("/") for word in line.split()[1:-1] if not word.startswith("--"))
    assert copied == set(image.sources)
    ignore = (ROOT / f"{image.dockerfile}.dockerignore").read_text().splitlines()
    assert set(image.sources) <= {line[1:] for line in ignore if line.startswith("!")}
