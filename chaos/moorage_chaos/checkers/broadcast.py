"""Broadcasts: each expected copy once, in order, and nobody else gets one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from moorage_chaos.checkers.base import Checker, held, judge_quantile, select
from moorage_chaos.history import Event, History
from moorage_chaos.verdict import Promise


def exactly_once(expected: int, *, all_accepted: bool = True, **match: Any) -> Checker:
    """Every accepted emit reached each client in its ``expect`` once and no other client; at least
    ``expected`` emits.

    Copies are joined by the ``mark`` in the body, which is the emit's operation id. An emit that certainly
    failed must reach nobody; one that may have happened may reach any of its expected clients, at most once.
    """

    def check_exactly_once(history: History) -> Iterator[Promise]:
        copies: dict[int, Counter[str]] = defaultdict(Counter)
        for note in history.notes("received"):
            if isinstance(note.value.get("mark"), int):
                copies[note.value["mark"]][note.value["client"]] += 1
        emits = select(history, "emit", **match)
        missing = doubled = strange = wanted = 0
        for emit in emits:
            got = copies.get(emit.invoke.id or 0, Counter())
            expect = set(emit.value["expect"]) if emit.phase != "fail" else set()
            if emit.phase == "ok":
                wanted += len(expect)
                missing += sum(client not in got for client in expect)
            doubled += sum(n - 1 for client, n in got.items() if client in expect)
            strange += sum(n for client, n in got.items() if client not in expect)
        good = sum(emit.phase == "ok" for emit in emits)
        verdict = held(good == len(emits) or not all_accepted, len(emits) >= expected)
        yield Promise("emits accepted", f"{expected}/{expected}", f"{good}/{len(emits)}", "emits", verdict)
        for name, count in (("missing", missing), ("doubled", doubled), ("delivered to others", strange)):
            yield Promise(f"copies {name}", "0", count, f"of {wanted}", held(not count, bool(emits)))

    return check_exactly_once


def in_order(**match: Any) -> Checker:
    """Each client sees ``update`` by rising ``seq``, and what one replica was given in the order it was
    given.

    For user-scoped clients ``seq`` is dense (PROTOCOL, "Bodies"): what is missing between two copies must be
    the seq of an emit that was not meant for them (the skipped sender).
    """

    def check_in_order(history: History) -> Iterator[Promise]:
        emits = {emit.invoke.id: emit for emit in select(history, "emit", **match)}
        users = {p.value["client"] for p in select(history, "connect", scope="user-scoped")}
        by_client: dict[str, list[Event]] = defaultdict(list)
        for note in history.notes("received"):
            if note.value.get("mark") in emits:
                by_client[note.value["client"]].append(note)
        disorder = holes = compared = 0
        for client, notes in by_client.items():
            lines: dict[Any, list[int]] = defaultdict(list)
            for note in notes:
                lines[note.value["event"], emits[note.value["mark"]].value.get("via")].append(
                    note.value["mark"]
                )
            for marks in lines.values():
                compared += len(marks) - 1
                disorder += sum(a > b for a, b in pairwise(marks))
            seqs = [note.value["seq"] for note in notes if note.value["event"] == "update"]
            disorder += sum(b <= a for a, b in pairwise(seqs))
            if client in users:
                skipped = {e.result.get("seq") for e in emits.values() if client not in e.value["expect"]}
                holes += len(set(range(min(seqs, default=0), max(seqs, default=0))) - set(seqs) - skipped)
        yield Promise(
            "copies out of order", "0", disorder, f"of {compared}", held(not disorder, compared > 0)
        )
        yield Promise(
            "holes in the seq of user-scoped clients", "0", holes, "holes", held(not holes, bool(users))
        )

    return check_in_order


def first_copy_within(name: str, q: float, bar_ms: float, **match: Any) -> Checker:
    """From the request of the emit to the first copy at a client."""

    def check_first_copy_within(history: History) -> Iterator[Promise]:
        first: dict[Any, int] = {}
        for note in history.notes("received"):
            first.setdefault(note.value.get("mark"), note.t)
        spans = [
            (emit.t0, first[emit.invoke.id])
            for emit in select(history, "emit", **match)
            if emit.invoke.id in first
        ]
        yield judge_quantile(history, name, spans, q, bar_ms)

    return check_first_copy_within
