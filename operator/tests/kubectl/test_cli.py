from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moorage_operator.kubectl import cli
from moorage_operator.kubectl.help import parser
from moorage_operator.kubectl.transport import Answer, NoKubeconfig

from .fake import FakeApi, condition, refused_by_budget, server, status, whole

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(fake: FakeApi, *arguments: str) -> int:
        monkeypatch.setattr(cli, "connect", lambda kubeconfig, context: (fake, "realtime"))
        return cli.main(list(arguments))

    return run


def test_status_is_0_when_ready_and_1_when_not(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(whole(), "status") == 0
    assert "AllReplicasReady" in capsys.readouterr().out
    bad = FakeApi(
        server(conditions=[condition("Ready", "False", "SecretNotFound", "Secret mail is missing")])
    )
    assert run(bad, "status", "chat") == 1


def test_all_namespaces_and_the_one_asked_for(run: Run) -> None:
    fake = whole()
    assert run(fake, "status", "-A") == 0
    assert fake.sent[0][1] == "/apis/moorage.dev/v1alpha1/realtimeservers"
    assert run(fake, "clients", "-n", "elsewhere") == 2
    assert fake.sent[-1][1] == "/apis/moorage.dev/v1alpha1/namespaces/elsewhere/realtimeservers"


def test_clients_is_1_when_a_pod_did_not_answer(run: Run) -> None:
    fake = whole()
    assert run(fake, "clients") == 0
    del fake.pages["chat-b:9090/metrics"]
    assert run(fake, "clients") == 1


def test_tail_prints_and_ends(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    fake = whole()
    assert run(fake, "tail", "chat", "--no-follow", "--component", "all", "--since", "1h") == 0
    assert capsys.readouterr().out.splitlines()[0] == "chat-redis-0 | zero"
    assert run(fake, "tail", "--no-follow") == 0
    assert fake.sent[-2][2].get("tailLines") == "20" or fake.sent[-1][2].get("tailLines") == "20"


def test_drain_is_1_when_the_budget_refuses(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    fake = whole()
    fake.refused["POST eviction"] = refused_by_budget()
    assert run(fake, "drain", "pod/chat-a") == 1
    assert "What to do:" in capsys.readouterr().out
    assert run(fake, "drain", "nope") == 2


def test_report_says_where_it_is(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "r.tar.gz"
    assert run(whole(), "report", "chat", "-o", str(target)) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert target.exists()
    assert run(whole(), "report", "chat", "-o", str(target)) == 2
    assert "exists already" in capsys.readouterr().err


def test_errors_say_what_to_do(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    without_crd = FakeApi()
    without_crd.absent_kinds.add("RealtimeServer")
    assert run(without_crd, "status") == 2
    assert "kubectl apply -f manifests/00-crd.yaml" in capsys.readouterr().err
    assert run(FakeApi(), "status") == 2
    assert "-A" in capsys.readouterr().err
    assert run(whole(), "status", "caht") == 2
    assert "no RealtimeServer caht in namespace realtime; there is: chat" in capsys.readouterr().err
    silent = FakeApi()
    silent.refused["GET "] = Answer(0, "")
    assert run(silent, "status") == 2
    assert "does not answer" in capsys.readouterr().err
    forbidden = FakeApi()
    forbidden.refused["GET "] = Answer(
        403, status(403, "Forbidden", "realtimeservers is forbidden: User x cannot list")
    )
    assert run(forbidden, "status") == 2
    assert "User x cannot list" in capsys.readouterr().err


def test_no_kubeconfig_is_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(kubeconfig: str | None, context: str | None) -> None:
        raise NoKubeconfig("no way to a cluster; set KUBECONFIG or give --kubeconfig")

    monkeypatch.setattr(cli, "connect", none)
    assert cli.main(["status"]) == 2
    assert "KUBECONFIG" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(line: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "say", closed)
    silenced = []
    monkeypatch.setattr(cli, "silence", lambda: silenced.append(True))
    assert run(whole(), "status") == 0
    assert silenced


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["fly"],
        ["drain"],
        ["tail", "--since", "yesterday"],
        ["tail", "--component", "database"],
        ["tail", "--tail", "-2"],
        ["report", "--log-lines", "0"],
        ["drain", "-A", "x"],
    ],
)
def test_wrong_usage_is_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(wrong)
    assert end.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "clients", "tail", "drain", "report"])
def test_help_shows_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "Exit codes: 0" in text
    examples = [line.strip() for line in text.splitlines() if line.strip().startswith("kubectl moorage ")]
    assert len(examples) >= 2
    for example in examples:
        words = example.split("  ")[0].split("|")[0].split()[2:]
        parsed = parser("0").parse_args(words)
        assert parsed.command == command
