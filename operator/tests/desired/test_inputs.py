from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_operator.desired.inputs import acl_line, external_backend, fingerprint, managed_url, references
from moorage_operator.desired.redis import configuration, quantity
from moorage_operator.resource import parse

from ..schema import defaulted, minimal

PASSWORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1)


@given(PASSWORDS)
def test_any_password_survives_the_url(password: str) -> None:
    parts = urlsplit(managed_url("chat-redis.realtime.svc", password))
    assert (unquote(parts.password or ""), parts.hostname, parts.port) == (
        password,
        "chat-redis.realtime.svc",
        6379,
    )


@given(PASSWORDS)
def test_any_password_survives_redis_conf(password: str) -> None:
    line = acl_line(password)
    assert line.startswith('requirepass "')
    assert line.endswith('"\n')
    quoted = line[len('requirepass "') : -2]
    assert '"' not in quoted
    assert "\n" not in quoted
    assert quoted.encode().decode("unicode_escape").encode("latin-1").decode() == password


def test_another_password_is_the_same_redis_another_host_is_not() -> None:
    same = external_backend("u", "redis://:one@host/0")
    assert same == external_backend("u", "redis://user:two@HOST:6379")
    assert same[1] == 6379
    for other in ("redis://other/0", "rediss://host/0", "redis://host:6380/0", "redis://host/1"):
        assert external_backend("u", other)[0] != same[0]


@pytest.mark.parametrize("url", ["", "http://host", "redis://", "host:6379", "redis://host:port"])
def test_what_is_no_redis_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        external_backend("u", url)


def test_a_fingerprint_is_keyed_by_its_owner() -> None:
    assert fingerprint("a", {"k": "v"}) == fingerprint("a", {"k": "v"})
    assert fingerprint("a", {"k": "v"}) != fingerprint("b", {"k": "v"})
    assert "v" not in fingerprint("a", ["v" * 40])


@pytest.mark.parametrize(
    ("text", "number"),
    [("256Mi", 268435456), ("1.5G", 1500000000), (1024, 1024), ("1Ki", 1024), ("2000m", 2), ("1E", 10**18)],
)
def test_quantities(text: str | int, number: int) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "Mi", "1Xi", "abc"])
def test_no_quantity(text: str) -> None:
    with pytest.raises(ValueError):
        quantity(text)


def test_maxmemory_leaves_a_quarter() -> None:
    assert "maxmemory 201326592\n" in configuration(parse(defaulted(minimal())))
    unlimited = parse(defaulted(minimal(redis={"resources": {}})))
    assert "maxmemory " not in configuration(unlimited)


def test_every_reference_is_found() -> None:
    spec = {
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k", "optional": True}}}],
        "envFrom": [{"configMapRef": {"name": "b"}}],
        "secretKeyRef": {"name": "c", "key": "k"},
        "redis": {"auth": {"secretKeyRef": {"name": "d", "key": "k"}}},
    }
    found = [(r.kind, r.name, r.key, r.optional) for r in references(parse(defaulted(minimal(**spec))))]
    assert found == [
        ("Secret", "a", "k", True),
        ("ConfigMap", "b", None, False),
        ("Secret", "c", "k", False),
        ("Secret", "d", "k", False),
    ]
