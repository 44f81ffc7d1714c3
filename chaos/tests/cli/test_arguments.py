"""The command line: usage errors teach, choices are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage_chaos.arguments import choose, parser
from moorage_chaos.cli import main
from moorage_chaos.scenarios import discover
from moorage_chaos.usage import UsageError, check_names

ROWS = Path(__file__).parent / "rows"


def names(*arguments: str) -> list[str]:
    return [
        row.name for row in choose(parser().parse_args(["--rows", str(ROWS), *arguments]), discover(ROWS))
    ]


def test_an_unknown_row_is_a_usage_error_with_near_matches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "brief-disconect"]) == 2
    assert "did you mean brief-disconnect" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--replicas", "0"],
        ["check"],
        ["compare", "one-run-only"],
        ["report", "/nonexistent"],
        ["recover", "file"],
        ["check", "/nonexistent/history.jsonl"],
        ["--rows", "/nonexistent"],
        ["--only", ","],
    ],
)
def test_wrong_usage_ends_with_2_and_a_reason(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("run_all.py: ")


@pytest.mark.parametrize("arguments", [["--seed", "x"], ["--driver", "moon"], ["--nonsense"], ["dance"]])
def test_argparse_ends_with_2_too(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "exit codes:" in text


def test_only_keeps_the_order_given_and_each_once() -> None:
    assert names("--only", "t-idle, t-good,t-idle") == ["t-idle", "t-good"]


def test_safe_only_leaves_the_others_out() -> None:
    chosen = names("--safe-only")
    assert "t-good" in chosen
    assert "t-kills" not in chosen


def test_a_row_on_demand_is_listed_and_played_only_when_named() -> None:
    assert "t-on-demand" not in names()
    assert "t-on-demand" in names("--list")
    assert names("--only", "t-on-demand") == ["t-on-demand"]


def test_every_name_has_a_hint_or_the_list() -> None:
    with pytest.raises(UsageError, match="known: alpha, beta"):
        check_names(["zzz"], ["beta", "alpha"], "mutant")


def test_rows_are_found_by_looking(tmp_path: Path) -> None:
    assert {"t-good", "t-kills", "brief-disconnect"} <= set(discover(ROWS))
    (tmp_path / "empty_row_file.py").write_text("")
    with pytest.raises(ValueError, match="holds no row"):
        discover(tmp_path)
    assert main(["--rows", str(tmp_path)]) == 2
