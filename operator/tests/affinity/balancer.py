"""The component's own haproxy.cfg, only its addresses replaced, run by the real HAProxy."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..schema import ROOT

CONFIGURATION = ROOT / "kustomize" / "components" / "user-affinity" / "haproxy.cfg"
HOW = "no HAProxy: apt-get install -y --no-install-recommends haproxy"
BOUND_S = 60.0
"""[s] Of a wait for something that takes a second (a check every second, a look at the name server too), or a few (a
replica starts). A busy machine may need many times that."""
BACKENDS = ("by_subject", "by_load")


def program() -> str:
    """Path of HAProxy; empty when there is none."""
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""


def version() -> tuple[int, int]:
    text = subprocess.run([program(), "-v"], capture_output=True, text=True, timeout=10, check=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", text)
    assert found is not None, text
    return int(found[1]), int(found[2])


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Balancer:
    """``port`` for clients, ``own`` for its metrics and health."""

    port: int
    own: int
    process: subprocess.Popen[bytes]

    def ask(self, path: str = "/", headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Status and body of one GET on a connection of its own."""
        return get(self.port, path, headers)

    def metrics(self, pattern: str) -> list[tuple[str, ...]]:
        status, text = get(self.own, "/metrics")
        assert status == 200
        return re.findall(pattern, text, re.MULTILINE)

    def serving(self) -> dict[str, int]:
        """How many replicas each backend counts as up."""
        found = self.metrics(r'^haproxy_backend_active_servers\{proxy="(\w+)"\} (\d+)')
        return {name: int(count) for name, count in found}

    def sessions(self, backend: str) -> list[int]:
        """Open connections of each replica that has any, ascending."""
        found = self.metrics(rf'^haproxy_server_current_sessions\{{proxy="{backend}",server="(\w+)"\}} (\d+)')
        return sorted(int(count) for _, count in found if count != "0")

    def requests(self, backend: str) -> int:
        """How many requests it has been sent so far."""
        found = self.metrics(rf'^haproxy_backend_http_requests_total\{{proxy="({backend})"\}} (\d+)')
        return int(found[0][1])

    def until_serving(self, count: int) -> None:
        until(f"{count} replicas up", lambda: self.serving() == dict.fromkeys(BACKENDS, count))


def get(
    port: int, path: str, headers: dict[str, str] | None = None, host: str = "127.0.0.1"
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=BOUND_S)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until(what: str, probe: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not probe():
        assert time.monotonic() < deadline, f"not within {BOUND_S:.0f} s: {what}"
        time.sleep(0.05)


def configuration(names: int, replicas: int, port: int, own: int) -> str:
    """The component's file for ports of 127.0.0.1: of the name server, of the replicas, its own two."""
    text = CONFIGURATION.read_text()
    for old, new, times in (
        ("parse-resolv-conf", f"nameserver test 127.0.0.1:{names}", 1),
        ("cluster.local:3005", f"cluster.local:{replicas}", 2),
        ("bind :3000", f"bind 127.0.0.1:{port}", 1),
        ("bind :8404", f"bind 127.0.0.1:{own}", 1),
    ):
        assert text.count(old) == times, f"{old} in haproxy.cfg"
        text = text.replace(old, new)
    return text


@contextmanager
def balancer(folder: Path, names: int, replicas: int, count: int) -> Iterator[Balancer]:
    """A running HAProxy that has found ``count`` replicas."""
    port, own = free_port(), free_port()
    file, log = folder / f"{port}.cfg", folder / f"{port}.log"
    file.write_text(configuration(names, replicas, port, own))
    with log.open("wb") as output:
        process = subprocess.Popen([program(), "-db", "-f", str(file)], stdout=output, stderr=output)
    try:
        until("HAProxy listens", lambda: process.poll() is not None or listens(own))
        assert process.poll() is None, log.read_text()
        found = Balancer(port, own, process)
        found.until_serving(count)
        yield found
        assert not process.poll(), log.read_text()
    finally:
        process.kill()
        process.wait(10)


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
