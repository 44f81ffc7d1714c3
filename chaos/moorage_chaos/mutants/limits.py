"""Limits that are not there, junk that kills."""

from __future__ import annotations

import os
from typing import Any

from moorage_chaos.mutants.registry import mutant, replace


@mutant("unbounded-buffer", "what a slow client does not read is queued without bound")
def unbounded_buffer() -> None:
    os.environ["MOORAGE_SOCKET_MAX_BUFFER_BYTES"] = str(10**9)


@mutant("no-limits", "any number of calls in flight and of methods on a socket")
def no_limits() -> None:
    os.environ["MOORAGE_RPC_MAX_IN_FLIGHT_PER_SOCKET"] = str(10**6)
    os.environ["MOORAGE_RPC_MAX_METHODS_PER_SOCKET"] = str(10**6)


@mutant("crash-on-junk", "a packet that breaks the protocol ends the process")
def crash_on_junk() -> None:
    from moorage.sockets.incoming import Incoming

    def malformed(self: Any, peer: Any, why: str) -> None:
        os._exit(70)

    replace(Incoming, "malformed", malformed)
