"""A helper that ends and leaves a process behind which still holds its output."""

from __future__ import annotations

import json
import subprocess
import sys

if __name__ == "__main__":
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    sys.stdout.write(json.dumps({"holder": left.pid}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
