"""Event logs that lose, double or swap; clients that do."""

from __future__ import annotations

import os
import time
from typing import Any

from moorage_chaos.mutants.registry import Every, mutant, replace


@mutant("skip-dedupe", "a client renders an event as often as it comes", side="client")
def skip_dedupe() -> None:
    from moorage.client.event_ledger import Seen

    replace(Seen, "__contains__", lambda self, event_id: False)


IN_PAGES = {"skip-dedupe": "shipped.Seen.prototype.has = () => false;"}
"""The same for pages that run moorage.js: a statement, before the stream is made."""


@mutant("swap-logged", "a client renders one event in twenty after the next one", side="client")
def swap_logged() -> None:
    from moorage.client.event_ledger import Ledger

    event, now = Ledger.event, Every(20)
    held: dict[int, Any] = {}

    def _event(self: Any, frame: Any) -> Any:
        out = event(self, frame)
        if len(out) == 1 and id(self) not in held and now():
            held[id(self)] = out[0]
            return []
        return [*out, held.pop(id(self))] if out and id(self) in held else out

    replace(Ledger, "event", _event)


@mutant("skip-replay", "a reader that comes back is told that its replay is done, and gets none")
def skip_replay() -> None:
    from moorage.events.frames import Frame
    from moorage.events.replay import Replay

    async def _replay(self: Any, reader: Any, group: Any, resume: Any) -> None:
        reader.send(Frame.control({"type": "replay_done", "lastEventId": str(group.order.id)}))
        reader.go_live(group.order.seq)

    replace(Replay, "_replay", _replay)


@mutant("partial-replay", "a reader whose place is gone gets what is left of the log, without a word")
def partial_replay() -> None:
    from moorage.events import log, replay

    for module in (log, replay):
        replace(module, "find_gap", lambda *_: None)


@mutant("double-logged", "one report in fifty is appended twice")
def double_logged() -> None:
    from moorage.events.log import EventLog

    append, now = EventLog.append, Every(50)

    async def _append(self: Any, session_id: str, type: str, data: Any, **more: Any) -> Any:
        made = await append(self, session_id, type, data, **more)
        if type == "item" and now():
            await append(self, session_id, type, data, **more)
        return made

    replace(EventLog, "append", _append)


@mutant("lose-logged", "one report in ten is acknowledged with an id and never logged")
def lose_logged() -> None:
    from moorage.events.log import Appended, EventLog

    append, now = EventLog.append, Every(10)

    async def _append(self: Any, session_id: str, type: str, data: Any, **more: Any) -> Any:
        if type == "item" and now():
            return Appended(f"{int(time.time() * 1000)}-999", 0)
        return await append(self, session_id, type, data, **more)

    replace(EventLog, "append", _append)


@mutant("silent-hole", "events that could not be logged are never told of")
def silent_hole() -> None:
    from moorage.events.writer import Writer

    replace(Writer, "_dig", lambda self, session_id, hole: None)


@mutant("one-reader-per-session", "a replica keeps the newest reader of a session and forgets the others")
def one_reader_per_session() -> None:
    from moorage.events.live import Live

    join = Live.join

    def _join(self: Any, reader: Any) -> Any:
        group = self.groups.get(reader.session_id)
        if group is not None:
            group.readers.clear()
        return join(self, reader)

    replace(Live, "join", _join)


@mutant("leak-descriptors", "each loss of Redis leaves a descriptor open")
def leak_descriptors() -> None:
    from moorage.storage.backplane import Backplane

    init = Backplane.__init__

    def __init__(self: Any, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        self.on_down.append(lambda: os.dup(0))

    replace(Backplane, "__init__", __init__)
