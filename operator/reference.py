"""Writes docs/operator/reference.md from the CRD: one row a field. ``--check`` only says whether it is up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CRD = ROOT / "manifests" / "00-crd.yaml"
PAGE = ROOT / "docs" / "operator" / "reference.md"
HEAD = """\
# RealtimeServer: every field

Generated from `manifests/00-crd.yaml` by `make docs-operator`. `kubectl explain rts.spec` shows the same.
What a field alone does not say: [index](index.md), [what happens when](what-happens-when.md).
"""


def page() -> str:
    """The whole text."""
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    parts = [HEAD]
    for title, part in (("spec", schema["spec"]), ("status", schema["status"])):
        parts.append(
            f"\n## {title}\n\n| field | type | default | bounds | meaning |\n|---|---|---|---|---|\n"
        )
        parts += [f"| {' | '.join(row)} |\n" for row in rows(part, title)]
    parts.append("\n## Rules\n\nRefused by the API server, with these words:\n\n")
    parts += [f"- {text}\n" for text in dict.fromkeys(rules(version["schema"]["openAPIV3Schema"]))]
    columns = [
        f"`{c['name']}`{' (wide)' if c.get('priority') else ''}" for c in version["additionalPrinterColumns"]
    ]
    parts.append(f"\n## Columns of `kubectl get rts`\n\n{', '.join(columns)}\n")
    return "".join(parts)


def rows(part: dict[str, Any], path: str) -> list[tuple[str, str, str, str, str]]:
    found = []
    required = set(part.get("required", []))
    for name, field in part.get("properties", {}).items():
        where = f"{path}.{name}"
        inner = field.get("items", field)
        kind = field.get("type", "integer or string")
        if "items" in field:
            kind = f"list of {inner.get('type', 'any')}"
        default = "**required**" if name in required else "null" if field.get("nullable") else ""
        if "default" in field and not (inner.get("properties") and isinstance(field["default"], dict)):
            default = f"`{json.dumps(field['default'])}`"
        found.append(
            (f"`{where}`", kind, default, bounds(field), field.get("description", "").replace("|", "\\|"))
        )
        found += rows(inner, f"{where}[]" if "items" in field else where)
    return found


def bounds(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(str(value) for value in field["enum"])
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None or high is not None:
        return f"{low if low is not None else ''}–{high if high is not None else ''}"
    for key, word in (("maxItems", "entries"), ("maxProperties", "keys"), ("maxLength", "characters")):
        if key in field:
            return f"≤ {field[key]} {word}"
    return ""


def rules(part: dict[str, Any]) -> list[str]:
    found = [rule["message"] for rule in part.get("x-kubernetes-validations", [])]
    for inner in (*part.get("properties", {}).values(), part.get("items"), part.get("additionalProperties")):
        if isinstance(inner, dict):
            found += rules(inner)
    return found


def main() -> int:
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text() == page() else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
