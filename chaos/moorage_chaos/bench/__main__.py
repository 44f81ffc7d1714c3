"""``python -m moorage_chaos.bench``."""

from __future__ import annotations

import sys

from moorage_chaos.bench.cli import main

sys.exit(main())
