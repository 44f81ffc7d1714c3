"""Tasks and events while the Redis of events is away, and how soon all is as before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from moorage_chaos.checkers.base import Checker, held, judge_quantile, select
from moorage_chaos.checkers.bite import bit
from moorage_chaos.checkers.logged import stories
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise


class Outage(NamedTuple):
    """Monotonic ns; 0: not known."""

    gone: int
    """Redis' death."""
    asked: int
    """It was asked back: from here on it may answer. On pods this is seconds before ``back``."""
    back: int
    """It answered, by the name that replicas know."""


UNKNOWN = Outage(0, 0, 0)


def outages(history: History) -> dict[str, Outage]:
    """By variant (empty in rows that have none)."""
    kills = [p for p in select(history, "fault", kind="redis-kill") if p.phase == "ok"]
    undone = select(history, "undo", kind="redis-kill")
    return {
        str(back.value.get("variant", "")): Outage(int(kill.result.get("tNs", kill.t0)), undo.t0, back.t)
        for kill, undo, back in zip(kills, undone, history.notes("redis-back"), strict=False)
    }


def _turns(history: History, **match: Any) -> list[Pair]:
    return [turn for turn in select(history, "turn", **match) if turn.phase == "ok"]


def under_way(expected: int) -> Checker:
    """So many tasks had reported and had not ended when Redis was stopped."""

    def check_under_way(history: History) -> Iterator[Promise]:
        away = outages(history)
        count = 0
        for turn in _turns(history):
            gone = away.get(str(turn.value["variant"]), UNKNOWN).gone
            appends = select(history, "append", session=turn.value["session"])
            begun = any(p.value["type"] == "item" and p.t0 < gone for p in appends)
            count += begun and not any(p.value["type"] == "task_result" and p.t0 < gone for p in appends)
        yield bit("tasks under way when Redis went", f">= {expected}", count, "tasks", count >= expected)

    return check_under_way


def done_while_away(expected: int, variant: str) -> Checker:
    """Each task was seen ``done`` while Redis was away."""

    def check_done_while_away(history: History) -> Iterator[Promise]:
        gone, asked, _ = outages(history).get(variant, UNKNOWN)
        seen = {
            poll.value["task"]
            for poll in select(history, "poll", variant=variant)
            if poll.result.get("status") == "done" and gone < poll.t0 and (poll.t1 or asked) < asked
        }
        tasks = {turn.result["task"] for turn in _turns(history, variant=variant)}
        yield Promise(f"tasks done while away ({variant})", f"{expected}/{expected}", f"{len(seen)}/{len(tasks)}",
                      "tasks", held(seen == tasks, len(tasks) >= expected and gone > 0))  # fmt: skip

    return check_done_while_away


def refused_while_away(at_least: int, variant: str) -> Checker:
    """Each look at a task while Redis certainly was away is answered 503 with ``Retry-After``."""

    def check_refused_while_away(history: History) -> Iterator[Promise]:
        gone, asked, _ = outages(history).get(variant, UNKNOWN)
        looks = [
            poll for poll in select(history, "poll", variant=variant)
            if gone < poll.t0 and (poll.t1 or asked) < asked
        ]  # fmt: skip
        wrong = [
            poll.result for poll in looks
            if poll.result.get("code") != 503 or not str(poll.result.get("retryAfter", "")).isdigit()
        ]  # fmt: skip
        yield Promise(f"looks not answered by 503 with Retry-After ({variant})", "0", len(wrong), f"of {len(looks)}",
                      held(not wrong, len(looks) >= at_least), str(wrong[:2]) if wrong else "")  # fmt: skip

    return check_refused_while_away


def done_soon_after(expected: int, bar_s: float, variant: str) -> Checker:
    """Each task is seen ``done`` at most ``bar_s`` after Redis is back."""

    def check_done_soon_after(history: History) -> Iterator[Promise]:
        back = outages(history).get(variant, UNKNOWN).back
        first: dict[str, int] = {}
        for poll in select(history, "poll", variant=variant):
            if poll.result.get("status") == "done" and poll.t1 is not None:
                first.setdefault(poll.value["task"], poll.t1)
        tasks = [turn.result["task"] for turn in _turns(history, variant=variant)]
        late = [task for task in tasks if task not in first]
        yield Promise(f"tasks done after all ({variant})", f"{expected}/{expected}",
                      f"{len(tasks) - len(late)}/{len(tasks)}", "tasks",
                      held(not late, len(tasks) >= expected and back > 0))  # fmt: skip
        spans = [(back, max(back, first[task])) for task in tasks if task in first]
        yield judge_quantile(history, f"from Redis back to done ({variant})", spans, 1.0, bar_s * 1000)

    return check_done_soon_after


def nobody_died() -> Checker:
    """No replica and no worker ended by itself."""

    def check_nobody_died(history: History) -> Iterator[Promise]:
        deaths = [note.value["link"] for note in history.notes("death") if not note.value.get("asked")]
        yield Promise("processes that died", "0", len(deaths), "deaths", held(not deaths), ", ".join(deaths))

    return check_nobody_died


def ids_again_within(bar_s: float, expected: int) -> Checker:
    """In each session an event gets an id at most ``bar_s`` after Redis is back."""

    def check_ids_again_within(history: History) -> Iterator[Promise]:
        away = outages(history)
        spans = []
        for turn in _turns(history):
            back = away.get(str(turn.value["variant"]), UNKNOWN).back
            again = [
                p.t1 for p in select(history, "append", session=turn.value["session"])
                if back and p.t0 > back and p.t1 is not None and p.result.get("id") is not None
            ]  # fmt: skip
            if again:
                spans.append((back, min(again)))
        total = len(_turns(history))
        yield Promise("sessions whose events have ids again", f"{expected}/{expected}", f"{len(spans)}/{total}",
                      "sessions", held(len(spans) == total, total >= expected))  # fmt: skip
        yield judge_quantile(history, "from Redis back to ids", spans, 1.0, bar_s * 1000)

    return check_ids_again_within


def announced_within(bar_s: float, expected: int) -> Checker:
    """Each reader of a session with events that got no id is told: ``unlogged``, or a gap, at most ``bar_s`` after
    Redis is back."""

    def check_announced_within(history: History) -> Iterator[Promise]:
        holes: dict[str, int] = defaultdict(int)
        for pair in select(history, "append"):
            holes[pair.value["session"]] += (
                pair.phase == "ok" and pair.result.get("id") is None and not pair.value.get("transient")
            )
        variants = {turn.value["session"]: str(turn.value["variant"]) for turn in _turns(history)}
        away = outages(history)
        spans, silent, concerned = [], [], 0
        for story in stories(history):
            if not holes[story.session]:
                continue
            concerned += 1
            gone, _, back = away.get(variants.get(story.session, ""), UNKNOWN)
            told = [n.t for n in story.rendered if n.value["type"] == "unlogged" and n.t > gone]
            told += [gap.t for gap in story.gaps if gap.t > gone]
            if told:
                spans.append((back, max(back, min(told))))
            else:
                silent.append(story.reader)
        yield bit("sessions with events that got no id", f">= {expected}", concerned, "sessions",
                  concerned >= expected)  # fmt: skip
        yield Promise("readers not told of the hole", "0", len(silent), f"of {concerned}",
                      held(not silent, concerned > 0), ", ".join(silent[:5]))  # fmt: skip
        yield judge_quantile(history, "from Redis back to the announcement", spans, 1.0, bar_s * 1000)

    return check_announced_within
