"""Who is sent where, by the real HAProxy in front of replicas that only say who they are."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .balancer import CONFIGURATION, Balancer, balancer, listens, program, until, version
from .names import Names
from .standin import Replica, some

pytestmark = pytest.mark.timeout(180)
"""[s] More than one wait may last."""
KEY = "nobody verifies this in front of a replica"
REPLICAS = 3
SUBJECTS = [f"user-{number}" for number in range(300)]


def token(subject: object, number: int = 0) -> str:
    """Another ``number``, another token."""
    return jwt.encode({"iss": "moorage", "jti": str(number), "claims": {"sub": "decoy"}, "sub": subject}, KEY)


def bearer(subject: object, number: int = 0) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(subject, number)}"}


def subprotocol(subject: object, number: int = 0) -> dict[str, str]:
    """What a browser sends with a session's stream (protocol: the second subprotocol)."""
    return {"Sec-WebSocket-Protocol": f"moorage.v1, bearer.{token(subject, number)}"}


class World:
    def __init__(self, replicas: list[Replica], front: Balancer) -> None:
        self.replicas, self.front = replicas, front

    def replica(self, headers: dict[str, str] | None = None, path: str = "/") -> str:
        status, body = self.front.ask(path, headers)
        assert status == 200, body
        return body

    def homes(self) -> dict[str, str]:
        return {subject: self.replica(bearer(subject)) for subject in SUBJECTS}


@pytest.fixture(scope="module")
def module_world(haproxy: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    replicas = some(REPLICAS)
    folder = tmp_path_factory.mktemp("haproxy")
    with (
        Names(*(replica.address for replica in replicas)).running() as names,
        balancer(folder, names.port, replicas[0].port, REPLICAS) as front,
    ):
        yield World(replicas, front)
    for replica in replicas:
        replica.stop()


@pytest.fixture
def world(module_world: World) -> Iterator[World]:
    """All replicas are up again afterwards."""
    yield module_world
    for replica in module_world.replicas:
        replica.ready = True
    module_world.front.until_serving(REPLICAS)


def test_the_file_is_accepted_as_it_is(haproxy: None) -> None:
    done = subprocess.run(
        [program(), "-c", "-f", str(CONFIGURATION)], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr


def test_all_tokens_of_a_subject_lead_to_one_replica(world: World) -> None:
    for subject in SUBJECTS[:40]:
        ways = [bearer(subject, 1), bearer(subject, 2), subprotocol(subject, 3), subprotocol(subject, 4)]
        ways.append({"authorization": f"bearer {token(subject, 5)}"})
        ways.append({"Sec-WebSocket-Protocol": f"moorage.v1,bearer.{token(subject, 6)}"})
        assert len({world.replica(headers) for headers in ways}) == 1, subject


def test_the_header_counts_before_the_subprotocol_as_in_the_server(world: World) -> None:
    homes = world.homes()
    first = SUBJECTS[0]
    other = next(subject for subject in SUBJECTS if homes[subject] != homes[first])
    assert world.replica(bearer(first) | subprotocol(other)) == homes[first]


def test_subjects_spread(world: World) -> None:
    counts = Counter(world.homes().values())
    assert len(counts) == REPLICAS
    assert min(counts.values()) > len(SUBJECTS) / REPLICAS / 2, counts


def test_a_replica_that_drains_moves_only_its_own_and_gets_them_back(world: World) -> None:
    before = world.homes()
    going = world.replicas[1]
    going.ready = False
    world.front.until_serving(REPLICAS - 1)
    after = world.homes()
    assert all(after[subject] == home for subject, home in before.items() if home != going.address)
    moved = Counter(after[subject] for subject, home in before.items() if home == going.address)
    assert set(moved) == {replica.address for replica in world.replicas} - {going.address}
    going.ready = True
    world.front.until_serving(REPLICAS)
    assert world.homes() == before


def test_a_replica_that_died_this_moment_costs_nobody_an_answer(world: World) -> None:
    """Before any check has seen it: a refused connection goes to another replica."""
    before = world.homes()
    dead = world.replicas[2]
    dead.stop()
    try:
        answers = {subject: world.replica(bearer(subject)) for subject in SUBJECTS[:60]}
    finally:
        dead.start()
    for subject, answered in answers.items():
        assert answered == before[subject] or before[subject] == dead.address
        assert answered != dead.address


def test_a_connection_stays_where_it_is_while_its_replica_drains(world: World) -> None:
    going = world.replicas[0]
    subject = next(subject for subject, home in world.homes().items() if home == going.address)
    answers: list[tuple[int, str]] = []
    going.release.clear()
    before = going.held
    thread = threading.Thread(target=lambda: answers.append(world.front.ask("/hold", bearer(subject))))
    thread.start()
    try:
        until("held", lambda: going.held == before + 1)
        going.ready = False
        world.front.until_serving(REPLICAS - 1)
        assert world.replica(bearer(subject)) != going.address
    finally:
        going.release.set()
        thread.join(20)
    assert answers == [(200, going.address)]


def test_without_a_subject_the_replica_with_fewest_connections(world: World) -> None:
    threads: list[threading.Thread] = []

    def held() -> int:
        return sum(replica.held for replica in world.replicas)

    def hold(count: int) -> list[int]:
        """So many more, one after the other; how many each replica got."""
        before = [replica.held for replica in world.replicas]
        for number in range(held() + 1, held() + 1 + count):
            threads.append(threading.Thread(target=world.front.ask, args=("/hold",)))
            threads[-1].start()
            until("held", lambda number=number: held() == number)
        return [replica.held - was for replica, was in zip(world.replicas, before, strict=True)]

    for replica in world.replicas:
        replica.release.clear()
    try:
        assert hold(2 * REPLICAS) == [2, 2, 2]
        emptied = world.replicas[1]
        emptied.release.set()
        until("emptied", lambda: world.front.sessions("by_load") == [2, 2])
        emptied.release.clear()
        assert hold(2) == [0, 2, 0]
    finally:
        for replica in world.replicas:
            replica.release.set()
        for thread in threads:
            thread.join(20)


def test_long_polling_stays_on_one_replica_with_a_token_and_without(world: World) -> None:
    homes = world.homes()
    paths = [
        "/v1/updates/?EIO=4&transport=polling",
        "/v1/updates/?EIO=4&transport=polling&sid=x",
        "/v1/updates/?EIO=4&transport=websocket&sid=x",
    ]
    assert len({world.replica(path=path) for path in paths for _ in range(5)}) == 1
    for subject in SUBJECTS[:20]:
        assert {world.replica(bearer(subject), path) for path in paths} == {homes[subject]}


def segments() -> st.SearchStrategy[str]:
    visible = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=",")
    return st.one_of(st.text(visible, max_size=60), st.just(token("someone")))


@given(text=st.lists(segments(), max_size=4).map(".".join))
@settings(max_examples=60)
def test_any_token_gets_an_answer(module_world: World, text: str) -> None:
    module_world.replica({"Authorization": f"Bearer {text}"})
    module_world.replica({"Sec-WebSocket-Protocol": f"moorage.v1, bearer.{text}"})


@pytest.mark.parametrize("subject", [None, 7, True, "", [], {"sub": "x"}, "x" * 4000, "ü\n\0"], ids=repr)
def test_any_subject_gets_an_answer(world: World, subject: object) -> None:
    made = jwt.api_jws.encode(json.dumps({"sub": subject}).encode(), KEY)
    world.replica({"Authorization": f"Bearer {made}"})


def test_a_token_that_is_too_long_is_refused_with_an_answer(world: World) -> None:
    status, _ = world.front.ask("/", {"Authorization": f"Bearer {'x' * 30_000}"})
    assert status == 400


def test_several_balancers_choose_the_same_replica(world: World, tmp_path: Path) -> None:
    """Each learns of the replicas in an order of its own. HAProxy before 3.0 then has a ring of its own, too."""
    addresses = [replica.address for replica in world.replicas]
    late = addresses[:-1] if version() >= (3, 0) else []
    first = [address for address in addresses if address not in late]
    with (
        Names(*first).running() as names,
        balancer(tmp_path, names.port, world.replicas[0].port, len(first)) as second,
    ):
        for address in reversed(late):
            names.addresses += (address,)
            second.until_serving(len(names.addresses))
        other = {subject: second.ask("/", bearer(subject))[1] for subject in SUBJECTS}
    assert other == world.homes()


def test_a_replica_that_the_name_server_forgets_is_not_used(haproxy: None, tmp_path: Path) -> None:
    replicas = some(2)
    try:
        with (
            Names(*(replica.address for replica in replicas)).running() as names,
            balancer(tmp_path, names.port, replicas[0].port, 2) as front,
        ):
            names.addresses = (replicas[0].address,)
            front.until_serving(1)
            answers = {front.ask("/", bearer(subject)) for subject in SUBJECTS[:50]}
            assert answers == {(200, replicas[0].address)}
    finally:
        for replica in replicas:
            replica.stop()


def test_a_balancer_that_is_told_to_go_lets_connections_end(haproxy: None, tmp_path: Path) -> None:
    """SIGUSR1, which the image's pods are ended with."""
    (replica,) = some(1)
    answers: list[tuple[int, str]] = []
    with (
        Names(replica.address).running() as names,
        balancer(tmp_path, names.port, replica.port, 1) as front,
    ):
        thread = threading.Thread(target=lambda: answers.append(front.ask("/hold")))
        thread.start()
        try:
            until("held", lambda: replica.held == 1)
            front.process.send_signal(signal.SIGUSR1)
            until("nobody new", lambda: not listens(front.port))
            assert front.process.poll() is None
        finally:
            replica.release.set()
            thread.join(20)
        assert front.process.wait(20) == 0
    replica.stop()
    assert answers == [(200, replica.address)]
