"""A replica that was out of reach is one of all again."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, judge_quantile, select
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def agreed_within(kind: str, bar_ms: float) -> Checker:
    """From the last undo before it to the ``agreed`` note of ``kind``: all replicas knew the same number of
    registrations and saw all members. Without the note they never did, as long as the row looked."""

    def check_agreed_within(history: History) -> Iterator[Promise]:
        name = f"{kind}: registries agree after healing"
        cuts, notes = history.notes("cut-off", kind=kind), history.notes("agreed", kind=kind)
        healed = [u.t1 for u in select(history, "undo") if u.t1 is not None and cuts and u.t0 > cuts[-1].t]
        if not healed:
            yield Promise(
                f"{name} max", f"<= {bar_ms:g}", None, "ms", "unknown", "nothing was cut and healed"
            )
        elif not notes:
            yield Promise(
                f"{name} max", f"<= {bar_ms:g}", None, "ms", "failed", "they did not, while the row looked"
            )
        else:
            before = [t for t in healed if t <= notes[-1].t] or [notes[-1].t]
            yield judge_quantile(history, name, [(max(before), notes[-1].t)], 1.0, bar_ms)

    return check_agreed_within
