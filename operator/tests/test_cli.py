from __future__ import annotations

import pytest

from moorage_operator.cli import main, options_of


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        options_of(["--help"])
    assert exit.value.code == 0
    text = capsys.readouterr().out
    for word in ("kubectl apply -f manifests/", "--namespace", "--no-lease", "/healthz", "WATCH_NAMESPACES"):
        assert word in text


def test_namespaces_by_option_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of([])[0].namespaces == ()
    monkeypatch.setenv("WATCH_NAMESPACES", "a,b")
    assert options_of([])[0].namespaces == ("a", "b")
    assert options_of(["--namespace", "c"])[0].namespaces == ("c",)
    monkeypatch.setenv("POD_NAME", "pod-1")
    assert options_of([])[0].holder == "pod-1"


@pytest.mark.parametrize(
    "wrong", [["--resync", "0"], ["--port", "70000"], ["--log-level", "loud"], ["--what"]]
)
def test_a_wrong_command_line_says_so(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        options_of(wrong)
    assert exit.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_no_cluster_is_one_line_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--no-lease", "--port", "0"]) == 2
    assert "no way to a Kubernetes API server" in capsys.readouterr().err
