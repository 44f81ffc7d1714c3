"""Redis holds no state of calls: nothing about ``rpc``, nothing with a time to live that routing would
need.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise

MAY_EXPIRE = ("moorage:events:", "moorage:{tasks}", "sio:session:")
"""Prefixes of keys that may carry a time to live: event logs slide, ended tasks are forgotten, the loss of a
recovery session loses events; none of them is a route.
"""


def no_rpc_state(listings: int) -> Checker:
    """Over all ``keys`` notes (``{"keys": [[name, type, ttl ms or -1], …]}``; at least ``listings`` of
    them).
    """

    def check_no_rpc_state(history: History) -> Iterator[Promise]:
        notes = history.notes("keys")
        keys = [tuple(key) for note in notes for key in note.value["keys"]]
        rpc = sorted({name for name, _, _ in keys if "rpc" in name.lower()})
        expiring = sorted({name for name, _, ttl in keys if ttl >= 0 and not name.startswith(MAY_EXPIRE)})
        known = len(notes) >= listings
        yield Promise("rpc keys", "0", len(rpc), "keys", held(not rpc, known), ", ".join(rpc[:5]))
        yield Promise(
            "keys with a TTL that routing needs",
            "0",
            len(expiring),
            "keys",
            held(not expiring, known),
            ", ".join(expiring[:5]),
        )

    return check_no_rpc_state
