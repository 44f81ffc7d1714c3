"""Two replicas, a worker and a Redis as processes, behind one address whose connections a test can cut."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .valkey import Valkey, free_port

BOUND_S = 60.0
"""[s] Of a start: four processes at once, on a machine that may be busy."""

SETUP_APART = pytest.mark.timeout(60, func_only=True)
"""For tests with a site: the limit of a test is not for the start, which has its own."""

KEY = "a key for tests that is long enough"


@dataclass
class Process:
    """`moorage serve` or `moorage worker`."""

    popen: subprocess.Popen[bytes]
    port: int
    log: Path

    def end(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(BOUND_S)


@dataclass
class Site:
    redis: Valkey
    folder: Path
    processes: dict[str, Process] = field(default_factory=dict)

    def start(self, *command: str, name: str) -> Process:
        port, log = free_port(), self.folder / f"{name}.log"
        env = {key: value for key, value in os.environ.items() if not key.startswith("MOORAGE_")}
        env |= {
            "PORT": str(port),
            "METRICS_ENABLED": "false",
            "MOORAGE_HOST": "127.0.0.1",
            "MOORAGE_DRAIN_MS": "200",
            "MOORAGE_CONSOLE_ENABLED": "true",
            "SECRET_KEY": KEY,
            "REDIS_URL": self.redis.url,
        }
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", "moorage.cli", *command],
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.processes[name] = Process(popen, port, log)
        return self.processes[name]

    def wait_ready(self, process: Process) -> None:
        deadline = time.monotonic() + BOUND_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/ready", timeout=2) as answer:
                    answer.read()
                    return
            except (urllib.error.URLError, OSError):
                if process.popen.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"not ready:\n{process.log.read_text(errors='replace')}")
                time.sleep(0.05)

    def start_all(self) -> None:
        """Replicas `a` and `b`, and a worker; returns when both replicas are ready."""
        replicas = [self.start("serve", name=name) for name in ("a", "b")]
        self.start("worker", name="worker")
        for replica in replicas:
            self.wait_ready(replica)

    def stop(self) -> None:
        for process in self.processes.values():
            process.popen.terminate()
        for process in self.processes.values():
            process.end()
