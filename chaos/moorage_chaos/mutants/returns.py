"""Connection state recovery that loses, doubles or forgets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from moorage_chaos.mutants.registry import mutant, replace


@mutant("skip-recovery-replay", "a recovered socket gets nothing of what it missed")
def skip_recovery_replay() -> None:
    from moorage.cluster.streamlog import StreamLog

    async def missed(self: Any, namespace: str, mine: Any, after: bytes, until: bytes) -> AsyncIterator[Any]:
        yield []

    replace(StreamLog, "missed", missed)


@mutant("skip-recovery-dedupe", "what comes during a replay is sent even if the replay had it")
def skip_recovery_dedupe() -> None:
    from moorage.cluster.recovery import Recovery
    from moorage.cluster.streamlog import StreamLog

    missed = StreamLog.missed

    def _missed(self: Any, namespace: str, mine: Any, after: bytes, until: bytes) -> AsyncIterator[Any]:
        return missed(self, namespace, mine, after, b"%d-0" % (2**63))

    replace(StreamLog, "missed", _missed)
    replace(Recovery, "_floor", lambda self, held, until: (0, 0))


@mutant("forget-private-ids", "no private id is known any more: every client that comes back is a new one")
def forget_private_ids() -> None:
    from moorage.cluster.pids import Pids

    replace(Pids, "read", lambda self, text: None)
