from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage_operator.kubectl import redact, report
from moorage_operator.kubectl.transport import Answer

from ..schema import defaulted, merged
from .fake import NAMESPACE, NOW, FakeApi, ago, secret, server, status, whole

PASSWORD = "correct-horse-battery"


def full_server(**spec: Any) -> dict[str, Any]:
    body = server()
    body["spec"] = merged(body["spec"], spec)
    return defaulted(body)


def event(about: str, kind: str, reason: str, seconds: float) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.{reason}", "namespace": NAMESPACE},
        "involvedObject": {"kind": kind, "name": about},
        "reason": reason,
        "message": "text",
        "type": "Normal",
        "lastTimestamp": ago(seconds),
        "count": 2,
    }


def world() -> FakeApi:
    fake = whole()
    fake.put(secret("chat-redis-password", password=PASSWORD))
    fake.put(event("chat", "RealtimeServer", "Ready", 10))
    fake.put(event("chat-a", "Pod", "Pulled", 60))
    fake.put(event("chat-gone", "Pod", "Killing", 30))
    fake.put(event("other", "Pod", "Foreign", 5))
    fake.put(server("chat-two"))
    fake.put(event("chat-two", "RealtimeServer", "Foreign", 5))
    fake.put(event("chat-two-a", "Pod", "Foreign", 5))
    return fake


def collected(fake: FakeApi, *bodies: dict[str, Any]) -> report.Report:
    return report.collect(
        fake.cluster,
        list(bodies) or fake.cluster.servers(NAMESPACE, "chat"),
        operator_namespace="moorage-system",
        lines=100,
        now=NOW,
        say=lambda line: None,
    )


def test_everything_that_belongs_to_the_object_is_there() -> None:
    found = collected(world()).files
    for path in (
        "README.txt",
        "realtime-chat/status.txt",
        "realtime-chat/objects/realtimeserver-chat.yaml",
        "realtime-chat/objects/poddisruptionbudget-chat.yaml",
        "realtime-chat/objects/secret-chat-redis-password.yaml",
        "realtime-chat/pods/chat-a/log.txt",
        "realtime-chat/pods/chat-a/metrics.txt",
        "realtime-chat/pods/chat-a/ready.json",
        "realtime-chat/pods/chat-redis-0/log.txt",
    ):
        assert path in found
    assert "realtime-chat/pods/chat-redis-0/metrics.txt" not in found
    assert "AllReplicasReady" in found["realtime-chat/status.txt"]


def test_events_are_those_of_the_object_and_its_children_oldest_first() -> None:
    lines = collected(world()).files["realtime-chat/events.txt"].splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["Pulled", "Killing", "Ready"]


def test_no_secret_leaves_by_any_door() -> None:
    fake = world()
    fake.logs["chat-a"].append(f"2026-11-30T11:59:09Z dialling redis://:{PASSWORD}@chat-redis:6379/0")
    fake.pages["chat-a:3005/ready"] = f'{{"url":"rediss://user:{PASSWORD}@elsewhere:6380"}}'
    body = full_server(
        env=[{"name": "API_TOKEN", "value": PASSWORD}, {"name": "COLOUR", "value": "blue"}],
        envFrom=[{"secretRef": {"name": "mail"}}, {"configMapRef": {"name": "theirs"}}],
    )
    mail = secret("mail", smtp=PASSWORD)
    mail["metadata"]["labels"] = {}
    mail["metadata"]["annotations"] = {redact.LAST_APPLIED: f'{{"stringData":{{"smtp":"{PASSWORD}"}}}}'}
    fake.put(mail)
    fake.put(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "theirs", "namespace": NAMESPACE},
            "data": {"ini": PASSWORD},
        }
    )
    found = collected(fake, body)
    everything = "\n".join(found.files.values())
    assert PASSWORD not in everything
    coded = secret("x", x=PASSWORD)["data"]["x"]
    assert coded not in everything
    shown = yaml.safe_load(found.files["realtime-chat/objects/secret-chat-redis-password.yaml"])
    assert shown["data"] == {"password": f"({len(PASSWORD)} bytes, hidden)"}
    assert "blue" in everything


@given(st.from_regex(r"[!-.0-9;-?A-~]{4,20}", fullmatch=True), st.sampled_from(["redis", "rediss", "amqp"]))
def test_passwords_in_urls_are_hidden(password: str, scheme: str) -> None:
    shown = redact.text(f"connected to {scheme}://user:{password}@host:6379/0 at once")
    assert shown == f"connected to {scheme}://user:(hidden)@host:6379/0 at once"


def test_urls_without_a_password_stay() -> None:
    for text in ("http://10.0.0.1:9090/metrics", "redis://chat-redis:6379/0", "at 12:00:01 a@b"):
        assert redact.text(text) == text


def test_what_cannot_be_read_is_said_and_the_rest_is_there() -> None:
    fake = world()
    fake.refused["GET secrets"] = Answer(403, status(403, "Forbidden", "secrets is forbidden"))
    fake.refused["GET nodes"] = Answer(403, status(403, "Forbidden", "nodes is forbidden"))
    fake.absent_kinds.add("ServiceMonitor")
    found = collected(fake)
    assert any("secrets is forbidden" in problem for problem in found.problems)
    assert not any("nodes" in p or "ServiceMonitor" in p for p in found.problems), "nobody misses these"
    assert "secrets is forbidden" in found.files["README.txt"]
    assert "realtime-chat/pods/chat-a/log.txt" in found.files


def test_a_missing_reference_is_told_as_such() -> None:
    body = full_server(envFrom=[{"secretRef": {"name": "mail"}}])
    found = collected(world(), body)
    assert "realtime-chat/objects/secret-mail.missing" in found.files


def test_a_container_that_restarted_has_two_logs_and_one_that_never_ran_none() -> None:
    fake = world()
    path = next(key for key in fake.bodies if key.endswith("/chat-a"))
    fake.bodies[path]["status"]["containerStatuses"][0]["restartCount"] = 2
    other = next(key for key in fake.bodies if key.endswith("/chat-b"))
    fake.bodies[other]["status"]["containerStatuses"] = []
    found = collected(fake).files
    assert "realtime-chat/pods/chat-a/log-before-restart.txt" in found
    assert not any("chat-b" in name for name in found if "/pods/" in name)


def small() -> report.Report:
    found = report.Report()
    found.put("README.txt", "hello")
    found.put("a/b.txt", "there\n")
    return found


def test_a_folder_is_written(tmp_path: Path) -> None:
    report.write(small(), tmp_path / "out" / "report")
    assert (tmp_path / "out" / "report" / "a" / "b.txt").read_text() == "there\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report"], "nothing is left beside it"


def test_an_archive_is_written(tmp_path: Path) -> None:
    report.write(small(), tmp_path / "report.tar.gz")
    with tarfile.open(tmp_path / "report.tar.gz") as tar:
        assert sorted(m.name for m in tar if m.isfile()) == ["report/README.txt", "report/a/b.txt"]


def test_nothing_is_overwritten_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report").mkdir()
    with pytest.raises(FileExistsError):
        report.write(small(), tmp_path / "report")

    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="disk full"):
        report.write(small(), tmp_path / "new.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
