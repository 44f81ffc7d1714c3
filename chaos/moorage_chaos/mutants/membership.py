"""Replicas that know too little of each other, or act on it wrongly; a Redis that is misused."""

from __future__ import annotations

import os
import time
from typing import Any

from moorage_chaos.mutants.registry import Every, mutant, replace


@mutant("lose-registration", "one registration in four that another replica told is forgotten")
def lose_registration() -> None:
    from moorage.rpc.registry import Registry

    apply, now = Registry.apply, Every(4)

    def _apply(self: Any, replica: str, items: Any) -> None:
        apply(self, replica, [item for item in items if item[0] != "+" or not now()])

    replace(Registry, "apply", _apply)


@mutant("leak-key", "each registration leaves a key with a time to live in Redis")
def leak_key() -> None:
    from moorage.app import Replica

    compose = Replica._compose_rpc

    def _compose_rpc(self: Any) -> None:
        compose(self)
        join = self.registry.join

        def _join(room: str, sid: str, resumable: bool = False) -> int:
            if self.backplane is not None:
                self.backplane.command("SET", f"route:{room}", self.settings.replica_id, "EX", 3600)
            return int(join(room, sid, resumable))

        self.registry.join = _join

    replace(Replica, "_compose_rpc", _compose_rpc)


@mutant("stall-on-death", "the loss of another replica stops the loop for 400 ms")
def stall_on_death() -> None:
    from moorage.rpc.remote import Remote

    gone = Remote.gone

    def _gone(self: Any, member: Any, kind: Any) -> None:
        time.sleep(0.4)
        gone(self, member, kind)

    replace(Remote, "gone", _gone)


@mutant("hasty-evidence", "two missed beats count as death")
def hasty_evidence() -> None:
    os.environ["MOORAGE_BEAT_MISSES"] = "2"


@mutant("no-hang-evidence", "a hung replica is never noticed")
def no_hang_evidence() -> None:
    os.environ["MOORAGE_BEAT_MISSES"] = "100000"


@mutant("no-drain", "SIGTERM closes everything at once")
def no_drain() -> None:
    from moorage.drain import Drain, DrainState

    async def run(self: Any) -> None:
        self.state = DrainState.DRAINED

    replace(Drain, "run", run)


@mutant("deaf-after-restart", "a subscription that was renewed hears nothing any more")
def deaf_after_restart() -> None:
    from moorage.storage.backplane import Backplane

    subscribe = Backplane.subscribe

    def _subscribe(self: Any, channel: str, callback: Any, **how: Any) -> Any:
        born = self.generation

        def hear(payload: bytes) -> None:
            if self.generation <= max(born, 1):
                callback(payload)

        return subscribe(self, channel, hear, **how)

    replace(Backplane, "subscribe", _subscribe)


@mutant("unbounded-stream", "entries are appended without MAXLEN")
def unbounded_stream() -> None:
    os.environ["MOORAGE_STREAM_MAXLEN"] = str(10**9)


@mutant("slow-stream", "each stream entry costs a third of a millisecond of the loop")
def slow_stream() -> None:
    from moorage.cluster import stream

    decode = vars(stream)["decode_entry"]

    def decode_entry(fields: Any) -> Any:
        time.sleep(0.0003)
        return decode(fields)

    replace(stream, "decode_entry", decode_entry)


@mutant("silent-return", "a replica whose links are back does not say so, and asks nobody for what it missed")
def silent_return() -> None:
    from moorage.cluster.membership import Membership

    up, ask = Membership._link_up, Membership._ask_state
    back: set[int] = set()

    def _link_up(self: Any) -> None:
        if self._hello is None:
            up(self)
        else:
            back.add(id(self))
            self._inboxes.linked = True

    def _ask_state(self: Any, member: Any) -> None:
        if id(self) not in back:
            ask(self, member)

    replace(Membership, "_link_up", _link_up)
    replace(Membership, "_ask_state", _ask_state)
