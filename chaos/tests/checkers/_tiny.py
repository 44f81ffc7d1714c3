"""Hand-made histories: times in milliseconds."""

from __future__ import annotations

from typing import Any

from moorage_chaos.checkers import Checker, judge
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


class Tiny(History):
    """A history written down line by line."""

    def call(self, t0: float, t1: float | None = None, end: str = "ok", **more: Any) -> int:
        """An operation; ``end`` is a phase or a code (``fail`` if ``delivered`` is "no", else ``info``)."""
        op = more.pop("op", "call")
        result = more.pop("result", {})
        delivered = more.pop("delivered", None)
        self._next += 1
        self.add(op, "invoke", more, id=self._next, t=int(t0 * 1e6))
        if t1 is not None:
            if end in ("ok", "fail", "info"):
                self.add(op, end, result, id=self._next, t=int(t1 * 1e6))  # type: ignore[arg-type]
            else:
                value = {"code": end, "delivered": delivered, **result}
                self.add(op, "fail" if delivered == "no" else "info", value, id=self._next, t=int(t1 * 1e6))
        return self._next

    def see(self, op: str, t: float, **value: Any) -> None:
        self.note(op, t=int(t * 1e6), **value)


def verdicts(history: History, *checkers: Checker) -> dict[str, str]:
    return {promise.name: promise.verdict for promise in judge(history, checkers)}


def only(history: History, checker: Checker) -> Promise:
    [promise] = judge(history, (checker,))
    return promise
