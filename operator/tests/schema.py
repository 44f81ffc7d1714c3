"""What the API server does with an object before we see it: defaults of the CRD's structural schema."""

from __future__ import annotations

import copy
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "manifests" / "00-crd.yaml"


@cache
def schema() -> dict[str, Any]:
    document = yaml.safe_load(CRD.read_text())
    result: dict[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return result


def defaulted(body: dict[str, Any]) -> dict[str, Any]:
    """A copy of ``body`` with the schema's defaults filled in, as the API server stores it."""
    result = copy.deepcopy(body)
    _fill(result, schema())
    metadata = result["metadata"]
    metadata.setdefault("namespace", "realtime")
    metadata.setdefault("uid", "00000000-0000-4000-8000-000000000001")
    metadata.setdefault("generation", 1)
    return result


def _fill(value: Any, part: dict[str, Any]) -> None:
    if isinstance(value, list) and isinstance(part.get("items"), dict):
        for item in value:
            _fill(item, part["items"])
    if not isinstance(value, dict):
        return
    for name, field in part.get("properties", {}).items():
        absent = name not in value or (value[name] is None and not field.get("nullable"))
        if absent and "default" in field:
            value[name] = copy.deepcopy(field["default"])
        elif absent:
            value.pop(name, None)
        if name in value:
            _fill(value[name], field)


def minimal(**spec: Any) -> dict[str, Any]:
    """The smallest object, with ``spec`` merged in."""
    return {
        "apiVersion": "moorage.dev/v1alpha1",
        "kind": "RealtimeServer",
        "metadata": {"name": "chat", "namespace": "realtime"},
        "spec": {"image": "moorage-server:1", **spec},
    }


def merged(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7386), except that null stays."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def kubectl() -> str:
    """The kubectl on PATH, else the one that the test cluster compiled; empty when there is none."""
    cache = Path(os.environ.get("BOX_CACHE", Path.home() / ".cache" / "testcluster"))
    compiled = cache / "bin" / "kubectl"
    return shutil.which("kubectl") or (str(compiled) if compiled.exists() else "")
