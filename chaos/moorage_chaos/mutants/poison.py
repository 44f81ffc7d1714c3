"""What nobody should have written does harm."""

from __future__ import annotations

import asyncio
from typing import Any

from moorage_chaos.mutants.registry import mutant, replace


@mutant("poison-for-ever", "a read of the stream that held a malformed entry is done again and again")
def poison_for_ever() -> None:
    from moorage.cluster.stream import StreamReader

    read = StreamReader._read

    async def _read(self: Any) -> None:
        poisoned, places = self.poisoned, {name: place.id for name, place in self._places.items()}
        await read(self)
        if self.poisoned > poisoned:
            for name, entry_id in places.items():
                self._places[name].id = entry_id

    replace(StreamReader, "_read", _read)


@mutant("poison-stops", "a malformed entry ends the reading of the stream")
def poison_stops() -> None:
    from moorage.cluster.stream import StreamReader

    def poison(self: Any, *rest: Any) -> None:
        raise asyncio.CancelledError

    replace(StreamReader, "poison", poison)


@mutant("poison-deafens", "after a malformed message on a channel nothing more is heard of other members")
def poison_deafens() -> None:
    from moorage.cluster.membership import Membership

    receive = Membership._receive

    def _receive(self: Any, payload: bytes, handle: Any) -> None:
        if not self.malformed:
            receive(self, payload, handle)

    replace(Membership, "_receive", _receive)
