"""Processes, tokens, the peer's versions."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jwt
import pytest

from moorage_chaos.bench import servers
from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.processes import Process, Redis, cpu_seconds


def test_a_token_is_of_its_account() -> None:
    claims = jwt.decode(servers.make_token("s" * 48, "me"), "s" * 48, algorithms=["HS256"], issuer="moorage")
    assert claims["sub"] == "me"


def test_the_packages_of_the_peer_are_exact() -> None:
    folder = servers.node_folder()
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    lock = json.loads((folder / "package-lock.json").read_text())
    assert wanted["@socket.io/redis-streams-adapter"] == "0.3.1"
    assert wanted["socket.io"].startswith("4.8.")
    for name, wish in wanted.items():
        version = wish.rpartition("@")[2] if wish.startswith("npm:") else wish
        assert version[0].isdigit()
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    assert all("resolved" not in package for package in lock["packages"].values())


def test_a_machine_without_node_has_no_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert servers.node_versions() is None
    assert "make node" in servers.MISSING_NODE


def test_the_peer_is_named_by_its_versions() -> None:
    assert servers.peer_name({"node": "20.1.0", "socket.io": "4.8.4"}) == "node 20.1.0, socket.io 4.8.4"


def test_a_process_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('why it ended'); raise SystemExit(3)"]
    process = Process("child", command, os.environ, tmp_path / "log", None)
    try:
        process._child.wait(20)
        with pytest.raises(BenchError, match=r"child ended with 3:\nwhy it ended"):
            process.check()
    finally:
        process.stop()
    with pytest.raises(BenchError, match="is gone"):
        cpu_seconds(process.pid)


def test_cpu_time_only_grows() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(1_000_000))
    assert cpu_seconds(os.getpid()) > before > 0


def test_redis_is_started_asked_and_ended(tmp_path: Path) -> None:
    with Redis(tmp_path) as redis:
        assert redis.version().startswith("valkey ")
        assert redis.subscribers("nobody") == 0
        redis.touch("nobody")
        assert redis.command("PING") == b"+PONG\r\n"
        child = redis.process._child
    assert child.poll() is not None
