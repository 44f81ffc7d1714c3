"""The event log: each reader renders what was reported, once, in order, or is told what is gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from moorage_chaos.checkers.base import Checker, held, judge_quantile, matches, select
from moorage_chaos.checkers.bite import bit
from moorage_chaos.history import Event, History, Pair
from moorage_chaos.verdict import Promise

ON_THE_WAY_NS = 500_000_000
"""What was reported this shortly before a reader left on purpose may still have been on its way: far longer than the
way takes."""


@dataclass
class Story:
    """What one reader saw. ``closed``: when the harness let go of it on purpose, monotonic ns."""

    reader: str
    session: str
    opened: int
    closed: int | None
    rendered: list[Event] = field(default_factory=list)
    gaps: list[Event] = field(default_factory=list)

    def wants(self, append: Pair) -> bool:
        """It must see this one, as it was there before and long enough after."""
        return append.t0 > self.opened and (
            self.closed is None or (append.t1 or 0) < self.closed - ON_THE_WAY_NS
        )


def number(event_id: str) -> tuple[int, int]:
    """Ids compare as two numbers (PROTOCOL, "Event log frames")."""
    first, _, second = event_id.partition("-")
    return int(first), int(second)


def stories(history: History, **match: object) -> list[Story]:
    """Of the readers whose ``reader`` note carries ``match``."""
    closed = {note.value["reader"]: note.t for note in history.notes("reader-closed")}
    found = {
        note.value["reader"]: Story(
            note.value["reader"], note.value["session"], note.t, closed.get(note.value["reader"])
        )
        for note in history.notes("reader")
        if matches(Pair(note), match)
    }
    for note in history.notes("event"):
        if note.value["reader"] in found:
            found[note.value["reader"]].rendered.append(note)
    for note in history.notes("gap"):
        if note.value["reader"] in found:
            found[note.value["reader"]].gaps.append(note)
    return list(found.values())


def logged(history: History) -> dict[str, list[Pair]]:
    """Session to its appends that were acknowledged with an id."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for pair in select(history, "append"):
        if pair.phase == "ok" and pair.result.get("id") is not None:
            found[pair.value["session"]].append(pair)
    return found


def each_once(at_least: int, *, gaps: bool = False, **match: object) -> Checker:
    """Every reader renders every event that was logged in its session once, by its id, and nothing that nobody
    reported. At least ``at_least`` copies had to be rendered.

    ``gaps``: what is gone may be missing if the reader was told so before it rendered anything later.
    An event is the same if its mark is the same: one that was logged twice is doubled, too.
    """

    def check_each_once(history: History) -> Iterator[Promise]:
        appends = logged(history)
        marks: dict[str, set[str]] = defaultdict(set)  # of everything that was tried, whatever became of it
        for pair in select(history, "append"):
            marks[pair.value["session"]].add(str(pair.value.get("mark")))
        wanted = lost = announced = doubled = strange = 0
        examples: list[str] = []
        for story in stories(history, **match):
            ids = {note.value["id"] for note in story.rendered}
            missing = [a for a in appends[story.session] if story.wants(a) and a.result["id"] not in ids]
            told = [a for a in missing if gaps and _told(story, a)]
            wanted += sum(story.wants(a) for a in appends[story.session])
            lost += len(missing) - len(told)
            announced += len(told)
            examples += [f"{story.reader} lacks {a.result['id']}" for a in missing if a not in told][:2]
            copies = Counter(n.value.get("mark") or n.value["id"] for n in story.rendered)
            twice = {what: n - 1 for what, n in copies.items() if n > 1 and what is not None}
            doubled += sum(twice.values())
            examples += [f"{story.reader} has {what} {n + 1} times" for what, n in twice.items()][:2]
            known = {a.result["id"] for a in appends[story.session]}
            strange += sum(
                n.value["id"] is not None
                and n.value["id"] not in known
                and str(n.value.get("mark")) not in marks[story.session]
                and n.value["type"] != "unlogged"
                for n in story.rendered
            )
        known_ = wanted >= at_least
        why = "; ".join(examples[:4])
        yield Promise("events to be rendered", f">= {at_least}", wanted, "copies", held(known_, known_))
        yield Promise("events lost", "0", lost, f"of {wanted}", held(not lost, wanted > 0), why)
        yield Promise("events doubled", "0", doubled, f"of {wanted}", held(not doubled, wanted > 0), why)
        yield Promise("events nobody reported", "0", strange, f"of {wanted}", held(not strange, wanted > 0))
        if gaps:
            yield Promise(
                "events gone, and said so", "any", announced, f"of {wanted}", held(True, wanted > 0)
            )

    return check_each_once


def _told(story: Story, append: Pair) -> bool:
    """A gap was announced after the event was reported and before anything later was rendered."""
    own = number(append.result["id"])
    later = [n.t for n in story.rendered if n.value["id"] is not None and number(n.value["id"]) > own]
    return any(append.t0 <= gap.t <= min(later, default=gap.t) for gap in story.gaps)


def log_order(**match: object) -> Checker:
    """Each reader renders events of the log by rising ids."""

    def check_log_order(history: History) -> Iterator[Promise]:
        disorder = compared = 0
        for story in stories(history, **match):
            ids = [number(n.value["id"]) for n in story.rendered if n.value["id"] is not None]
            compared += max(0, len(ids) - 1)
            # The same id again is doubled, which is said elsewhere.
            disorder += sum(b < a for a, b in pairwise(ids))
        yield Promise(
            "events out of order", "0", disorder, f"of {compared}", held(not disorder, compared > 0)
        )

    return check_log_order


def turns_ended(expected: int, **match: object) -> Checker:
    """Every task that was started is ``done`` in the end, and each reader of its session renders its one
    ``task_result``."""

    def check_turns_ended(history: History) -> Iterator[Promise]:
        turns = [p for p in select(history, "turn", **match) if p.phase == "ok"]
        states = {note.value["task"]: note.value["status"] for note in history.notes("task")}
        results: Counter[tuple[str, str]] = Counter()
        for note in history.notes("event", type="task_result"):
            results[note.value["reader"], str(note.value.get("mark"))] += 1
        readers: dict[str, list[str]] = defaultdict(list)
        for story in stories(history):
            if story.closed is None:
                readers[story.session].append(story.reader)
        done = good = copies = 0
        for turn in turns:
            task = turn.result["task"]
            done += states.get(task) == "done"
            for reader in readers[turn.value["session"]]:
                copies += 1
                good += results[reader, f"task_result:{task}"] == 1
        known = len(turns) >= expected
        yield Promise(
            "tasks done",
            f"{expected}/{expected}",
            f"{done}/{len(turns)}",
            "tasks",
            held(done == len(turns), known),
        )
        yield Promise(
            "one task_result for each reader", f"{copies}/{copies}", f"{good}/{copies}", "copies",
            held(good == copies, known and copies >= expected),
        )  # fmt: skip

    return check_turns_ended


def overlapped(share: float, **match: object) -> Checker:
    """Of all resumes at least ``share`` saw an event both live and by replay: what de-duplication is for happened."""

    def check_overlapped(history: History) -> Iterator[Promise]:
        notes = [note for note in history.notes("resumed") if matches(Pair(note), match)]
        resumes = sum(note.value["resumes"] for note in notes)
        overlaps = sum(note.value["overlaps"] for note in notes)
        real = resumes > 0 and overlaps / resumes >= share
        measured = round(overlaps / resumes, 3) if resumes else 0
        yield bit("resumes whose replay overlapped live", f">= {share:g}", measured, f"of {resumes}", real)

    return check_overlapped


def away_at_most(bar_s: float, at_least: int) -> Checker:
    """Every reader that lost its connection is live again within ``bar_s``, by the ``reader-state`` notes."""

    def check_away_at_most(history: History) -> Iterator[Promise]:
        since: dict[str, int] = {}
        spans: list[tuple[int, int]] = []
        for note in history.notes("reader-state"):
            reader, state = note.value["reader"], note.value["state"]
            if state in ("waiting", "failed"):
                since.setdefault(reader, note.t)
            elif state == "live" and reader in since:
                spans.append((since.pop(reader), note.t))
        total = len(spans) + len(since)
        yield Promise("readers back", f"{total}/{total}", f"{len(spans)}/{total}", "losses",
                      held(not since, total >= at_least))  # fmt: skip
        yield judge_quantile(history, "away", spans, 1.0, bar_s * 1000)

    return check_away_at_most


def holes_told(at_least: int) -> Checker:
    """Each reader is told of every event of its session that got no id: by the counts of ``unlogged``, or a gap. One
    that came with an id after all is no hole."""

    def check_holes_told(history: History) -> Iterator[Promise]:
        holes: dict[str, list[Pair]] = defaultdict(list)
        for pair in select(history, "append"):
            if pair.phase == "ok" and pair.result.get("id") is None and not pair.value.get("transient"):
                holes[pair.value["session"]].append(pair)
        total = silent = 0
        for story in stories(history):
            marks = {note.value.get("mark") for note in story.rendered if note.value["id"] is not None}
            missing = [a for a in holes[story.session] if story.wants(a) and a.value.get("mark") not in marks]
            told = sum(
                int(n.value.get("count") or 0) for n in story.rendered if n.value["type"] == "unlogged"
            )
            total += len(missing)
            silent += max(0, len(missing) - told) if not story.gaps else 0
        yield Promise("events without an id that nobody was told of", "0", silent, f"of {total}",
                      held(not silent, total >= at_least))  # fmt: skip

    return check_holes_told
