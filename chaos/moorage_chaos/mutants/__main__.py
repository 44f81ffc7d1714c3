"""``python -m moorage_chaos.mutants NAME serve``; without arguments the list."""

from __future__ import annotations

import sys

from moorage_chaos.mutants import NAMES, run


def main(argv: list[str]) -> int:
    """Exit code of the server, or 2 for an unknown name."""
    if not argv:
        sys.stdout.writelines(f"{name:24} {sentence}\n" for name, sentence in NAMES.items())
        return 0
    if argv[0] not in NAMES:
        sys.stderr.write(f"no mutant is named {argv[0]!r}\n")
        return 2
    return run(argv[0], argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
