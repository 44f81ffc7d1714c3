"""The command line: help that teaches, errors that name the variable, tokens that the replicas take."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from moorage import settings
from moorage.accounts.tokens import Tokens
from moorage.cli import main

KEY = "k" * 32


def test_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "exit codes:" in text


def test_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SECRET_KEY", KEY)
    assert main(["token", "--account", "alice"]) == 0
    token = capsys.readouterr().out.strip()
    assert Tokens(settings.load(secret_key=KEY)).verify(token) == "alice"


def test_token_without_a_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    assert main(["token", "--account", "alice"]) == 2
    assert "SECRET_KEY" in capsys.readouterr().err


def test_bad_account_is_an_error_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SECRET_KEY", KEY)
    assert main(["token", "--account", "a:b"]) == 2
    assert "colon" in capsys.readouterr().err


def test_bad_configuration_refuses_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.delenv("SECRET_KEY", raising=False)
    assert main(["serve"]) == 2
    assert "SECRET_KEY is required" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--markdown"]], ids=str)
def test_a_reader_that_stops_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "moorage.cli", "settings", *arguments]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=30, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_settings_lists_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    text = capsys.readouterr().out
    for name, _, _ in settings.table():
        assert name in text
