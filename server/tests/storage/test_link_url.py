"""Redis URLs."""

from __future__ import annotations

import pytest

from moorage.errors import ConfigurationError
from moorage.storage.url import RedisUrl, parse_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", RedisUrl("redis")),
        ("redis://h", RedisUrl("redis", "h")),
        ("redis://h:7/3", RedisUrl("redis", "h", 7, db=3)),
        ("redis://h?db=4", RedisUrl("redis", "h", db=4)),
        ("redis://:p%40ss%2F@h", RedisUrl("redis", "h", password="p@ss/")),
        ("redis://u%3A:p@h/", RedisUrl("redis", "h", user="u:", password="p")),
        ("rediss://[::1]:7", RedisUrl("rediss", "::1", 7)),
        ("unix:///run/r.sock?db=2", RedisUrl("unix", path="/run/r.sock", db=2)),
        ("unix://u:p@/run/a%20b", RedisUrl("unix", path="/run/a b", user="u", password="p")),
    ],
)
def test_parts(url: str, expected: RedisUrl) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "url", ["", "http://h", "redis://:secret@h:port", "redis://:secret@h/x", "redis://:secret@h/²", "unix://",
            "redis://:secret@[h"],
)  # fmt: skip
def test_bad_urls_are_refused_without_showing_a_secret(url: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_url(url)
    assert "secret" not in str(error.value)


def test_a_url_is_shown_without_its_secrets() -> None:
    for text in (str(parse_url("redis://user:secret@h")), repr(parse_url("unix://user:secret@/s"))):
        assert "secret" not in text
        assert "user" not in text
