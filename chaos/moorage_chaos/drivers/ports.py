"""Ports to listen on that no outgoing connection can take.

A port must stay ours while its process is dead (Redis is down for 20 s and comes back on it). One from the
kernel's range for outgoing connections could meanwhile become some client's source port, so ours lie below
that range.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

FIRST = 10_240
"""Above what well-known services of a machine use."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _limit() -> int:
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


class Ports:
    """Gives each port once."""

    def __init__(self) -> None:
        # Harnesses that run side by side should not even try the same ports.
        self._random = random.Random(os.getpid() ^ int.from_bytes(os.urandom(4), "big"))
        self._given: set[int] = set()

    def take(self) -> int:
        """A free port of 127.0.0.1. Raises OSError if there is none after many tries."""
        for _ in range(500):
            port = self._random.randrange(FIRST, max(_limit(), FIRST + 1000))
            if port in self._given:
                continue
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            self._given.add(port)
            return port
        raise OSError("no free port")
