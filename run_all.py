#!/usr/bin/env python3
"""Runs the chaos matrix: ``./run_all.py --help``. With the repository's .venv if the packages are not installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE / ".venv" / "bin" / "python"


def main() -> int:
    try:
        from moorage_chaos.cli import main as run
    except ImportError as error:
        if PYTHON.exists() and Path(sys.prefix) != HERE / ".venv":
            os.execv(PYTHON, [str(PYTHON), str(HERE / "run_all.py"), *sys.argv[1:]])
        print(f"run_all.py: {error}; `make venv` installs what is needed", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
