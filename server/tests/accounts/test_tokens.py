from __future__ import annotations

import base64
import json
import logging
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.accounts import tokens as module
from moorage.accounts.tokens import InvalidToken, Tokens
from moorage.settings import Settings, load

SECRET = "s" * 40
NOW = 1_800_000_000


class Clock:
    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings() -> Settings:
    return load(secret_key=SECRET, token_ttl_ms=60_000)


@pytest.fixture
def tokens(settings: Settings, clock: Clock) -> Tokens:
    return Tokens(settings, now=clock)


def forge(key: Any = SECRET, alg: str = "HS256", **claims: Any) -> str:
    given_claims = {"sub": "acc", "iss": "moorage", "iat": NOW, "exp": NOW + 60, **claims}
    return jwt.encode({k: v for k, v in given_claims.items() if v is not None}, key, algorithm=alg)


def test_a_token_proves_its_account_until_it_expires(tokens: Tokens, clock: Clock) -> None:
    token = tokens.issue("acc+/=")
    assert jwt.decode(token, SECRET, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False}) == {
        "sub": "acc+/=", "iss": "moorage", "iat": NOW, "exp": NOW + 60,
    }  # fmt: skip
    assert tokens.verify(token) == "acc+/="
    clock.now += 59
    assert tokens.verify(token) == "acc+/="
    clock.now += 1
    for _ in range(2):
        with pytest.raises(InvalidToken):
            tokens.verify(token)


def test_another_replica_with_the_same_key_accepts_it(tokens: Tokens, settings: Settings) -> None:
    slow = Tokens(settings, now=lambda: NOW - 30.0)
    assert slow.verify(tokens.issue("acc")) == "acc"


@pytest.mark.parametrize(
    "token",
    [
        forge("x" * 40),
        forge(iss="other"),
        forge(iss=None),
        forge(exp=None),
        forge(exp=NOW),
        forge(exp=NOW - 1),
        forge(sub=None),
        forge(sub=""),
        forge(sub="a:b"),
        forge(nbf=2**40),
        forge(SECRET + "x" * 30, "HS512"),
        forge(SECRET + "x" * 30, "HS384"),
        jwt.encode({"sub": "acc", "iss": "moorage", "exp": NOW + 60}, None, algorithm="none"),
        forge().rsplit(".", 1)[0] + ".",
        forge()[:-2],
        "a.b.c",
        "..",
        "",
        "x" * 100_000,
        "\ud800.\ud800.\ud800",
        None,
        7,
        b"bytes",
        ["list"],
    ],
)
async def test_anything_else_is_refused(tokens: Tokens, token: Any) -> None:
    for _ in range(2):
        with pytest.raises(InvalidToken) as caught:
            tokens.verify(token)
        assert str(caught.value) == "Invalid token"
        assert caught.value.__cause__ is None
    with pytest.raises(InvalidToken):
        await tokens.verify_or_fetch(token)


@given(st.text())
def test_junk_is_refused(text: str) -> None:
    tokens = Tokens(load(secret_key=SECRET))
    with pytest.raises(InvalidToken):
        tokens.verify(text)


@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "b64"]), st.none() | st.text() | st.integers()
    )
)
def test_hostile_headers_are_refused(header: dict[str, Any]) -> None:
    tokens = Tokens(load(secret_key=SECRET))
    parts = [json.dumps(part).encode() for part in (header, {"sub": "acc", "iss": "moorage", "exp": 2**40})]
    token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"sig"))
    with pytest.raises(InvalidToken):
        tokens.verify(token)


def test_names_that_no_account_may_have_get_no_token(tokens: Tokens) -> None:
    for name in ("", "a:b", "a b", "x" * 257):
        with pytest.raises(ValueError, match="an account has"):
            tokens.issue(name)


def test_the_cache_is_bounded_and_saves_the_check(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_MAX", 3)
    issued = [tokens.issue(f"a{n}") for n in range(5)]
    for token in issued:
        tokens.verify(token)
    assert len(tokens._cache) == 3
    checks: list[str] = []
    monkeypatch.setattr(Tokens, "_check", lambda self, token, now: checks.append(token) or ("again", now + 9))
    assert [tokens.verify(token) for token in issued[2:]] == ["a2", "a3", "a4"]
    assert checks == []
    assert tokens.verify(issued[0]) == "again"


def test_nothing_of_a_token_is_logged(tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for token in (tokens.issue("acc"), forge("x" * 40)):
        try:
            tokens.verify(token)
        except InvalidToken:
            pass
        assert token not in caplog.text
    assert SECRET not in caplog.text
