"""What is judged while a row is played, and what is judged later from its file, is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage_chaos.history import History
from moorage_chaos.play import OUTCOME, judged
from moorage_chaos.saved import check
from moorage_chaos.scenarios import discover
from moorage_chaos.usage import UsageError
from moorage_chaos.verdict import Promise

ROWS = discover()


def saved(folder: Path, row: str, *, played: bool, trouble: list[Promise]) -> Path:
    history = History({"row": row, "seed": 1})
    history.begin("call", group="x", method="m", journal=False).ok(answered=1)
    history.note(OUTCOME, seconds=1.25, played=played, trouble=[promise.as_json() for promise in trouble])
    history.save(folder / row / "history.jsonl")
    return folder / row / "history.jsonl"


@pytest.mark.parametrize("row", ROWS)
def test_a_saved_history_is_judged_as_the_one_in_memory(row: str, tmp_path: Path) -> None:
    path = saved(tmp_path, row, played=True, trouble=[])
    [again] = check([str(path)], ROWS)
    assert again == judged(ROWS[row](), History.load(path))
    assert again.seconds == 1.25


def test_what_the_harness_itself_could_not_do_is_in_the_history(tmp_path: Path) -> None:
    trouble = [Promise("restored", "<= 60", None, "s", "unknown", "not within 60 s")]
    saved(tmp_path, "broadcast", played=False, trouble=trouble)
    [result] = check([str(tmp_path)], ROWS)
    assert result.verdict == "unknown"
    assert result.promises[0] == trouble[0]
    assert not any(promise.name.startswith("bite") for promise in result.promises), (
        "it was not played to its end"
    )


def test_no_history_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a history"):
        check([str(tmp_path)], ROWS)
    (tmp_path / "junk.jsonl").write_text('{"format": 99}\n')
    with pytest.raises(UsageError, match="format 99"):
        check([str(tmp_path / "junk.jsonl")], ROWS)
