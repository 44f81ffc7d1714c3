"""Rules of the node helper: what is put there is exactly what is taken away; readers of /proc and of conntrack."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.node import network

SIDES = st.sampled_from(["client", "redis"])


def listing_after(script: str) -> str:
    """What ``iptables -S`` shows once the script was restored into an empty table."""
    shown = ["-P INPUT ACCEPT", "-P FORWARD ACCEPT", "-P OUTPUT ACCEPT"]
    chains, rules = [], []
    for line in script.splitlines():
        if line.startswith(":"):
            chains.append(f"-N {line[1:].split()[0]}")
        elif line.startswith("-I"):
            words = line.split()
            rules.append(" ".join(["-A", words[1], *words[3:]]))
        elif line.startswith("-A"):
            rules.append(line)
    return "\n".join([*shown, *chains, *rules])


@given(
    SIDES,
    st.integers(1, 65535),
    st.sampled_from(["drop", "refuse", "police"]),
    st.sampled_from(["both", "up", "down"]),
)
def test_removal_takes_away_exactly_what_was_put_there(side: Any, port: int, do: str, direction: Any) -> None:
    made = network.rules(side, port, do, direction)
    foreign = "-N MESH\n-A INPUT -p tcp -j MESH\n"
    removal = network.removal(foreign + listing_after(made), side)
    jumps = [line for line in made.splitlines() if line.startswith("-I")]
    chains = [line[1:].split()[0] for line in made.splitlines() if line.startswith(":")]
    assert sorted(line for line in removal.splitlines() if line.startswith("-D")) == sorted(
        f"-D {jump.split()[1]} -j {jump.split()[-1]}" for jump in jumps
    )
    assert [line for line in removal.splitlines() if line.startswith("-X")] == [
        f"-X {chain}" for chain in chains
    ]
    assert "MESH" not in removal


def test_nothing_of_ours_needs_no_removal() -> None:
    assert network.removal("-P INPUT ACCEPT\n-N OTHER\n-A INPUT -j OTHER") == ""


def test_a_side_is_removed_without_the_other() -> None:
    both = (
        listing_after(network.rules("client", 3005, "drop"))
        + "\n"
        + listing_after(network.rules("redis", 6379, "drop"))
    )
    removal = network.removal(both, "redis")
    assert "redis" in removal
    assert "client" not in removal
    assert "client" in network.removal(both)


@pytest.mark.parametrize(
    ("side", "direction", "expected"),
    [
        ("client", "up", ["-A MOORAGE-CHAOS-client-in -p tcp --dport 3005 -j DROP"]),
        ("client", "down", ["-A MOORAGE-CHAOS-client-out -p tcp --sport 3005 -j DROP"]),
        ("redis", "up", ["-A MOORAGE-CHAOS-redis-out -p tcp --dport 3005 -j DROP"]),
        ("redis", "down", ["-A MOORAGE-CHAOS-redis-in -p tcp --sport 3005 -j DROP"]),
    ],
)
def test_up_is_towards_the_server_or_redis(side: Any, direction: Any, expected: list[str]) -> None:
    script = network.rules(side, 3005, "drop", direction)
    assert [line for line in script.splitlines() if line.startswith("-A")] == expected


def test_refuse_resets_only_what_begins() -> None:
    (rule,) = [line for line in network.rules("client", 3005, "refuse").splitlines() if line.startswith("-A")]
    assert "--syn" in rule
    assert rule.endswith("--reject-with tcp-reset")


def test_an_unknown_fault_is_an_error() -> None:
    with pytest.raises(ValueError, match="teleport"):
        network.rules("client", 3005, "teleport")


def test_conntrack_counts_by_who_answers() -> None:
    text = (
        "ipv4 2 tcp 6 431998 ESTABLISHED src=10.9.0.1 dst=10.9.0.11 sport=40000 dport=30300 "
        "src=10.244.1.5 dst=10.244.1.1 sport=3005 dport=40000 [ASSURED] mark=0 use=1\n"
        "tcp 6 100 TIME_WAIT src=10.9.0.1 dst=10.244.1.5 sport=40001 dport=3005 "
        "src=10.244.1.5 dst=10.9.0.1 sport=3005 dport=40001 [ASSURED] use=1\n"
        "udp 17 20 src=10.244.1.5 dst=10.96.0.10 sport=3005 dport=53 src=1 dst=2 sport=53 dport=3005 use=1\n"
        "tcp 6 431998 ESTABLISHED src=10.244.1.5 dst=10.244.2.9 sport=50000 dport=6379 "
        "src=10.244.2.9 dst=10.244.1.5 sport=6379 dport=50000 [ASSURED] use=1\n"
    )
    assert network.tracked(text, "10.244.1.5", 3005) == {"ESTABLISHED": 1, "TIME_WAIT": 1}
    assert network.tracked(text, "10.244.9.9", 3005) == {}


@given(st.text())
def test_any_text_of_conntrack_is_read(text: str) -> None:
    network.tracked(text, "10.0.0.1", 3005)


def test_established_connections_by_side() -> None:
    lines = [
        "   0: 0501F40A:0BBD 0100E90A:9C40 01 00000000:00000000 00:00000000 00000000 65532 0 1",
        "   1: 0501F40A:0BBD 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65532 0 1",
        "   2: 0501F40A:C350 0902F40A:18EB 01 00000000:00000000 00:00000000 00000000 65532 0 1",
    ]
    assert len(list(network._rows(lines, "client", 3005))) == 1
    assert len(list(network._rows(lines, "redis", 6379))) == 1
    assert len(list(network._rows(lines, "client", 6379))) == 0
