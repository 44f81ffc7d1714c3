"""Whether something after an id is gone, and why. No I/O (PROTOCOL, "Event log frames", step 4)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from moorage.events.frames import START, EventId, Head, Resume

Reason = Literal["invalid", "epoch", "expired", "trimmed"]


class Gap(NamedTuple):
    """``oldest``: the oldest kept id. ``missed``: how many events after ``last_seq`` are gone; None: not known."""

    reason: Reason
    oldest: str | None
    missed: int | None = None

    def frame(self) -> dict[str, Any]:
        """``replay_gap``."""
        content: dict[str, Any] = {"type": "replay_gap", "reason": self.reason, "oldest": self.oldest}
        if self.missed is not None:
            content["missed"] = self.missed
        return content


def find_gap(resume: Resume, head: Head, first_seq: int | None) -> Gap | None:
    """The gap after ``resume`` in a log that stands at ``head``, or None: all after it is kept.

    ``first_seq``: seq of the first kept entry after the id; None: there is none.
    """
    after = EventId.parse(resume.after)
    if after is None:
        return Gap("invalid", head.oldest)
    if (resume.epoch is not None and resume.epoch != head.epoch) or after > head.last:
        return Gap("epoch", head.oldest)
    if after == head.last:
        return None
    known = resume.last_seq if resume.epoch is not None else None
    if head.oldest is None or head.oldest_seq is None:
        return Gap("expired", None, None if known is None else max(0, head.last_seq - known))
    oldest = EventId.parse(head.oldest) or START
    if known is not None:
        if first_seq is not None and first_seq <= known:
            # The numbers begin again: this log lost its tail (a Redis that came back with older data) and went on.
            return Gap("epoch", head.oldest)
        missed = head.oldest_seq - known - 1
        return Gap("trimmed", head.oldest, missed) if after < oldest and missed > 0 else None
    if after == START:
        return None if head.oldest_seq == 1 else Gap("trimmed", head.oldest)
    return Gap("trimmed", head.oldest) if after < oldest else None
