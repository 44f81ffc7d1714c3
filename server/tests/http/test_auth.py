from __future__ import annotations

import base64
import logging

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .conftest import SECRET, World, make_world


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def signed(key: Ed25519PrivateKey, challenge: bytes = b"challenge") -> dict[str, str]:
    public = key.public_key().public_bytes_raw()
    return {"publicKey": b64(public), "challenge": b64(challenge), "signature": b64(key.sign(challenge))}


async def test_sign_in_gives_a_token_for_the_key(world: World, nobody: httpx.AsyncClient) -> None:
    body = signed(Ed25519PrivateKey.generate())
    answer = await nobody.post("/v1/auth", json=body)
    assert answer.status_code == 200
    assert answer.json().keys() == {"success", "token"}
    assert answer.json()["success"] is True
    assert world.tokens.verify(answer.json()["token"]) == body["publicKey"]
    again = await nobody.get("/v1/sessions", headers={"Authorization": f"Bearer {answer.json()['token']}"})
    assert again.json() == {"sessions": []}


@pytest.mark.parametrize("field", ["publicKey", "challenge", "signature"])
async def test_a_wrong_signature(nobody: httpx.AsyncClient, field: str) -> None:
    body = signed(Ed25519PrivateKey.generate()) | {field: b64(b"x" * 32)}
    answer = await nobody.post("/v1/auth", json=body)
    assert (answer.status_code, answer.json()) == (401, {"error": "Invalid signature", "statusCode": 401})


async def test_seventy_new_accounts_a_minute_are_normal(nobody: httpx.AsyncClient) -> None:
    for _ in range(80):
        assert (await nobody.post("/v1/auth", json=signed(Ed25519PrivateKey.generate()))).status_code == 200


async def test_a_challenge_without_time_is_refused_when_an_age_is_set() -> None:
    async with make_world(auth_challenge_max_age_ms=1000).client(None) as nobody:
        assert (await nobody.post("/v1/auth", json=signed(Ed25519PrivateKey.generate()))).status_code == 401


async def test_secrets_are_not_in_errors_or_logs(
    nobody: httpx.AsyncClient, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "moorage")
    word = "very-private-word"
    token = world.tokens.issue("acc")
    bearer = {"Authorization": f"Bearer {token}"}
    answers = [
        await nobody.post("/v1/auth", json={"publicKey": [word], "challenge": {word: 1}, word: 1}),
        await nobody.post("/v1/auth", json={"publicKey": word, "challenge": word, "signature": word}),
        await nobody.get("/v1/sessions", headers={"Authorization": f"Bearer {token}{word}"}),
        await nobody.post("/v1/sessions", json={"tag": {"x": word}, "metadata": word}, headers=bearer),
        await nobody.post(
            "/v1/emit", json={"event": word, "filter": {"type": word}, "body": word}, headers=bearer
        ),
        await nobody.post("/v1/emit", json={"filter": word, word: word}, headers=bearer),
        await nobody.post(
            "/v1/sessions", content=f'{{"{word}', headers=bearer | {"Content-Type": "application/json"}
        ),
        await nobody.get(f"/v1/sessions/x/messages?limit={word}", headers=bearer),
        await nobody.get(f"/v1/sessions/{word}/messages", headers=bearer),
    ]
    assert all(400 <= answer.status_code < 500 for answer in answers)
    for text in (*(answer.text for answer in answers), caplog.text):
        assert word not in text
        assert token not in text
        assert SECRET not in text
