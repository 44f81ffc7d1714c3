"""What is remembered of requests that ended on this replica: their ids, so that none runs twice, and the latest
answers, so that a lost one can be sent again. No I/O."""

from __future__ import annotations

import time
from collections import OrderedDict

IDS_MAX = 32_768
"""Ids of one of the two generations that are kept; at 10,000 calls a second the older one covers 3 s or more."""
ANSWERS_MAX = 16_384
ANSWERS_MAX_BYTES = 32 << 20
"""Bytes of kept answers. One that is forgotten and was lost on its way leaves its call to its deadline."""
SLACK_S = 5.0
"""How much older than its stated age a request may be: the question for it was under way, too."""


class Ended:
    """Ids in two generations: the older one is dropped as a whole, and when that was, is known."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._older: set[str] = set()
        self._began = self._complete_since = float("-inf")
        self._answers: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._ids or call_id in self._older

    def add(self, call_id: str, answer: bytes | None = None) -> None:
        """``call_id`` ended; ``answer`` is the message that says so, None when nobody waits for one."""
        self._ids.add(call_id)
        if len(self._ids) >= IDS_MAX:
            self._older, self._ids = self._ids, set()
            self._complete_since, self._began = self._began, time.monotonic()
        self._bytes -= len(self._answers.pop(call_id, b""))
        if answer is not None:
            self._answers[call_id] = answer
            self._bytes += len(answer)
            while len(self._answers) > ANSWERS_MAX or self._bytes > ANSWERS_MAX_BYTES:
                self._bytes -= len(self._answers.popitem(last=False)[1])

    def answer(self, call_id: str) -> bytes | None:
        """The kept answer."""
        return self._answers.get(call_id)

    def surely_never(self, call_id: str, age_s: float) -> bool:
        """True when a request sent ``age_s`` ago certainly did not end here: its end could not be forgotten yet."""
        return call_id not in self and time.monotonic() - age_s - SLACK_S > self._complete_since
