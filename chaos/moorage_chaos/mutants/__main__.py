"""``python -m moorage_chaos.mutants NAME serve``; without arguments the list, with the rows that each must
turn red.
"""

from __future__ import annotations

import sys

from moorage_chaos.mutants import NAMES, run
from moorage_chaos.scenarios import discover


def listing() -> str:
    """A line for each mutant: name, rows that it must turn red, what is broken."""
    rows = discover().items()
    lines = []
    for name, sentence in NAMES.items():
        red = ", ".join(row for row, scenario in rows if name in scenario.mutants)
        lines.append(f"{name:22} {sentence}\n{'':22} red: {red}\n")
    return "".join(lines)


def main(argv: list[str]) -> int:
    """Exit code of the server, or 2 for an unknown name."""
    if not argv:
        sys.stdout.write(listing())
        return 0
    if argv[0] not in NAMES:
        sys.stderr.write(f"no mutant is named {argv[0]!r}\n")
        return 2
    return run(argv[0], argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
