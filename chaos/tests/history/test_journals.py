from __future__ import annotations

import json
from typing import Any

from moorage_chaos.history import History
from moorage_chaos.journals import add


def line(worker: str, n: int, phase: str, t: int, **more: Any) -> str:
    return json.dumps({"worker": worker, "n": n, "phase": phase, "t": t, **more})


def reported(session: str, mark: str) -> dict[str, Any]:
    return {"session": session, "type": "item", "data": {"mark": mark}, "key": None, "transient": False}


def test_appends_of_all_workers_are_joined_and_those_of_others_left_out() -> None:
    history = History()
    lines = [
        line("w1", 1, "invoke", 10, **reported("s", "m1")),
        line("w1", 2, "invoke", 11, **reported("s", "m2")),
        line("w2", 1, "invoke", 12, **reported("elsewhere", "m3")),
        line("w1", 1, "ok", 13, id="5-0", seq=1),
        line("w2", 1, "ok", 14, id="6-0", seq=1),
        line("w3", 1, "invoke", 15, **reported("s", "m4")),
        line("w3", 1, "fail", 16, error="EventTooLarge: …"),
    ]
    add(history, lines, frozenset({"s"}))
    found = [(p.value["mark"], p.value["worker"], p.phase, p.t1) for p in history.pairs("append")]
    assert found == [("m1", "w1", "ok", 13), ("m2", "w1", None, None), ("m4", "w3", "fail", 16)]
    assert history.pairs("append")[0].result == {"id": "5-0", "seq": 1}
