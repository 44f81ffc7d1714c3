from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_operator.errors import Unreachable
from moorage_operator.kubectl import logs
from moorage_operator.kubectl.logs import Following, Wanted, components, merged, split
from moorage_operator.kubectl.transport import Answer

from .fake import FakeApi, pod, server, status, whole

ALL = frozenset({"server", "worker", "redis"})
SERVERS = Wanted("realtime", ("chat",), frozenset({"server"}))


def test_lines_are_merged_by_time_and_carry_their_pod() -> None:
    found = logs.fetch(whole().cluster, Wanted("realtime", ("chat",), ALL), pytest.fail)
    assert list(merged(found, stamps=False)) == [
        "chat-redis-0 | zero",
        "chat-a       | one",
        "chat-b       | two",
        "chat-a       | three",
    ]


def test_time_stamps_are_kept_when_asked_for() -> None:
    assert list(merged({"a": "2026-11-30T11:59:01Z one"}, stamps=True)) == ["a | 2026-11-30T11:59:01Z one"]


def test_a_line_without_a_time_stays_behind_the_one_before_it() -> None:
    cut = "2026-11-30T11:59:09Z first\nrest of it"
    lines = list(merged({"a": cut, "b": "2026-11-30T11:59:05Z early"}, stamps=False))
    assert lines == ["b | early", "a | first", "a | rest of it"]


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(st.integers(10, 59), max_size=8)))
def test_nothing_is_lost_or_doubled(seconds: dict[str, list[int]]) -> None:
    given_logs = {
        name: "".join(
            f"2026-11-30T12:00:{second}Z {name}{index}\n" for index, second in enumerate(sorted(values))
        )
        for name, values in seconds.items()
    }
    lines = list(merged(given_logs, stamps=True))
    assert len(lines) == sum(map(len, seconds.values()))
    stamps = [line.split(" | ")[1].split()[0] for line in lines]
    assert stamps == sorted(stamps)


def test_what_looks_like_no_time_is_text() -> None:
    assert split("hello there") == ("", "hello there")
    assert split("2026-11-30T11:59:01Z hello there") == ("2026-11-30T11:59:01Z", "hello there")


def test_one_pod_without_a_log_does_not_hide_the_others() -> None:
    fake, complaints = whole(), []
    fake.refused["GET chat-a/log"] = Answer(400, status(400, "BadRequest", "container is waiting to start"))
    found = logs.fetch(fake.cluster, SERVERS, complaints.append)
    assert list(found) == ["chat-b"]
    assert "waiting to start" in complaints[0]


def test_bounds_are_passed_on() -> None:
    fake = whole()
    logs.fetch(fake.cluster, Wanted("realtime", ("chat",), ALL, since=600, lines=5), pytest.fail)
    asked = [query for _, path, query in fake.sent if path.endswith("/log")]
    assert all(q["sinceSeconds"] == "600" and q["tailLines"] == "5" and int(q["limitBytes"]) for q in asked)


def test_following_shows_each_line_once_although_logs_are_asked_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "AGAIN_SECONDS", 0.01)
    fake, said = whole(), []

    def enough() -> bool:
        asked = [path for _, path, _ in fake.sent if path.endswith("chat-a/log")]
        if len(asked) > 3 and "chat-a | four" not in said and len(fake.logs["chat-a"]) == 2:
            fake.logs["chat-a"].append("2026-11-30T11:59:04.5Z four")
            fake.logs["chat-b"].append("2026-11-30T11:59:05.5Z five")
        return len(said) >= 5

    Following(fake.cluster, SERVERS, said.append, lambda line: None, stamps=False).run(enough)
    assert sorted(said) == sorted(
        ["chat-a | one", "chat-a | three", "chat-b | two", "chat-a | four", "chat-b | five"]
    )
    asked = [query for _, path, query in fake.sent if path.endswith("chat-a/log")]
    assert asked[-1]["sinceTime"] >= "2026-11-30T11:59:03.5Z", "asked anew from where it was"


def test_a_pod_that_comes_later_is_joined_from_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.01)
    fake, said, complaints = whole(), [], []
    wanted = Wanted("realtime", ("chat",), frozenset({"server"}), lines=20)

    def enough() -> bool:
        if len(said) == 3 and "chat-c" not in fake.logs:
            fake.logs["chat-c"] = ["2026-11-30T12:00:00.5Z hello"]
            fake.put(pod("chat-c"))
        return "chat-c | hello" in said

    Following(fake.cluster, wanted, said.append, complaints.append, stamps=False).run(enough)
    assert "chat-c: new" in complaints
    first = next(query for _, path, query in fake.sent if path.endswith("chat-c/log"))
    assert "tailLines" not in first


def test_a_missing_right_is_complained_about_once() -> None:
    fake, complaints = whole(), []

    def refuse(*_: object, **__: object) -> None:
        raise Unreachable("GET log: HTTP 403", status=403)

    fake.lines = refuse  # type: ignore[assignment, method-assign]
    Following(fake.cluster, SERVERS, pytest.fail, complaints.append, stamps=False).run(
        lambda: len(complaints) >= 2
    )
    assert sorted(complaints) == ["chat-a: GET log: HTTP 403", "chat-b: GET log: HTTP 403"]


def test_no_pods_to_begin_with_is_an_error_of_the_api_not_a_hang() -> None:
    fake = FakeApi(server())
    fake.refused["GET pods"] = Answer(403, status(403, "Forbidden", "pods is forbidden"))
    with pytest.raises(Exception, match="pods is forbidden"):
        Following(fake.cluster, SERVERS, pytest.fail, pytest.fail, stamps=False).run()


def test_components() -> None:
    assert components("all") == ALL
    assert components("server,redis") == {"server", "redis"}
    for wrong in ("", "database", "server,x"):
        with pytest.raises(ValueError, match="choose from"):
            components(wrong)
