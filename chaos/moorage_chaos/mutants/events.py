"""Broadcasts that are lost, doubled, swapped or sent to the wrong people; wrong presence."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from moorage_chaos.mutants.registry import Every, mutant, replace


@mutant("drop-event", "one broadcast copy in fifty is not delivered")
def drop_event() -> None:
    from moorage.cluster.local import LocalManager

    targets, now = LocalManager._targets, Every(50)

    def _targets(self: Any, namespace: str, rooms: Any, except_: Any) -> Any:
        return {sid: at for sid, at in targets(self, namespace, rooms, except_).items() if not now()}

    replace(LocalManager, "_targets", _targets)


@mutant("double-event", "one broadcast copy in fifty is delivered twice")
def double_event() -> None:
    from moorage.cluster.local import LocalManager

    push, now = LocalManager.push, Every(50)

    def _push(self: Any, eio_sids: Iterable[str], packet: Any, *, volatile: bool = False) -> int:
        sids = list(eio_sids)
        if len(sids) > 1 and now():
            sids.append(sids[0])
        return push(self, sids, packet, volatile=volatile)

    replace(LocalManager, "push", _push)


@mutant("swap-events", "one broadcast in ten is delivered after the next one")
def swap_events() -> None:
    from moorage.cluster.local import LocalManager

    push, now = LocalManager.push, Every(10)
    held: list[tuple[list[str], Any]] = []

    def _push(self: Any, eio_sids: Iterable[str], packet: Any, *, volatile: bool = False) -> int:
        sids = list(eio_sids)
        if len(sids) < 2:
            return push(self, sids, packet, volatile=volatile)
        if not held and now():
            held.append((sids, packet))
            return len(sids)
        count = push(self, sids, packet, volatile=volatile)
        while held:
            push(self, *held.pop())
        return count

    replace(LocalManager, "push", _push)


@mutant("leak-broadcast", "one broadcast in twenty goes to every socket, whatever its account")
def leak_broadcast() -> None:
    from moorage.cluster.local import LocalManager

    targets, now = LocalManager._targets, Every(20)

    def _targets(self: Any, namespace: str, rooms: Any, except_: Any) -> Any:
        return targets(self, namespace, () if rooms and now() else rooms, except_)

    replace(LocalManager, "_targets", _targets)


@mutant("presence-local", "a replica answers for presence without asking the others")
def presence_local() -> None:
    from moorage.sockets.presence import Presence

    async def has_active_ui_client(self: Any, account: str) -> bool:
        return bool(self.answer(account))

    replace(Presence, "has_active_ui_client", has_active_ui_client)


@mutant("presence-flap", "for 300 ms after any socket of an account went, the account counts as absent")
def presence_flap() -> None:
    from moorage.app import Replica
    from moorage.sockets.presence import Presence

    left: dict[str, float] = {}
    disconnected = Replica._disconnected

    def _disconnected(self: Any, client: Any) -> None:
        left[client.account] = time.monotonic()
        disconnected(self, client)

    async def has_active_ui_client(self: Any, account: str) -> bool:
        return False if time.monotonic() - left.get(account, -1.0) < 0.3 else bool(await ask(self, account))

    ask = Presence.has_active_ui_client
    replace(Replica, "_disconnected", _disconnected)
    replace(Presence, "has_active_ui_client", has_active_ui_client)
