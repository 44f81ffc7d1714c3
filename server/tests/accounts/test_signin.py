from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from moorage.accounts.names import is_account, key_account, outside_account
from moorage.accounts.signin import InvalidSignature, verify_signin

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def test_the_account_is_the_public_key() -> None:
    assert verify_signin(b64(PUBLIC), b64(b"hello"), b64(KEY.sign(b"hello"))) == b64(PUBLIC)


def test_every_spelling_of_a_key_is_one_account() -> None:
    signature = b64(KEY.sign(b"hello"))
    without_padding = b64(PUBLIC).rstrip("=")
    # The last character of 32 bytes in base64 carries two bits that mean nothing.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = without_padding[:-1] + alphabet[alphabet.index(without_padding[-1]) | 1] + "="
    for spelling in (without_padding, twin):
        assert verify_signin(spelling, b64(b"hello"), signature) == b64(PUBLIC)


@pytest.mark.parametrize(
    ("key", "challenge", "signature"),
    [
        (b64(PUBLIC), b64(b"hello"), b64(KEY.sign(b"hallo"))),
        (b64(bytes(32)), b64(b"hello"), b64(KEY.sign(b"hello"))),
        (b64(PUBLIC[:31]), b64(b"hello"), b64(KEY.sign(b"hello"))),
        (b64(PUBLIC + b"x"), b64(b"hello"), b64(KEY.sign(b"hello"))),
        (b64(PUBLIC), "no base64!", b64(KEY.sign(b"hello"))),
        (b64(PUBLIC), b64(b"hello"), b64(KEY.sign(b"hello"))[:-8]),
        ("", "", ""),
        ("ü", "ü", "\ud800"),
    ],
)
def test_every_refusal_is_the_same(key: str, challenge: str, signature: str) -> None:
    with pytest.raises(InvalidSignature) as caught:
        verify_signin(key, challenge, signature)
    assert (caught.value.status, caught.value.error, caught.value.message) == (401, "Invalid signature", None)


def test_an_old_challenge_is_refused_when_an_age_is_set() -> None:
    def attempt(challenge: bytes, **options: int) -> str:
        return verify_signin(b64(PUBLIC), b64(challenge), b64(KEY.sign(challenge)), **options)

    assert attempt(b"1000:abc", max_age_ms=500, now_ms=1500)
    assert attempt(b"1000:abc", max_age_ms=500, now_ms=500)
    for challenge, now in ((b"1000:abc", 1501), (b"1000:abc", 499), (b"abc", 0), (b"", 0)):
        with pytest.raises(InvalidSignature):
            attempt(challenge, max_age_ms=500, now_ms=now)
    assert attempt(b"abc")


@given(st.text(), st.text(), st.text())
def test_junk_is_refused(key: str, challenge: str, signature: str) -> None:
    with pytest.raises(InvalidSignature):
        verify_signin(key, challenge, signature)


@given(st.text(max_size=300))
def test_an_outside_subject_becomes_a_safe_name_or_is_refused(subject: str) -> None:
    try:
        name = outside_account(subject)
    except ValueError:
        return
    assert is_account(name)
    assert not set(name) & set(":{} \n\x00")


def test_an_outside_issuer_cannot_name_a_key() -> None:
    for subject in (b64(PUBLIC), b64(PUBLIC).rstrip("="), "", None, 7, "x" * 257):
        with pytest.raises(ValueError):
            outside_account(subject)
    assert outside_account("auth0|5f7") == "auth0|5f7"
    assert outside_account("system:serviceaccount:ns:x") == "system%3Aserviceaccount%3Ans%3Ax"
    assert outside_account("a%3Ab") != outside_account("a:b")


def test_names_that_could_read_as_rooms_or_keys_are_none() -> None:
    assert is_account(key_account(b64(PUBLIC)))
    for name in ("", "a:b", "a{b", "}", "a b", "a\n", "x" * 257, "\ud800", None, 5, b"a"):
        assert not is_account(name)
