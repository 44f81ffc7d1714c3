"""A client that sends everything it should not, beside one that works."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from moorage_chaos import raw
from moorage_chaos.accounts import Account
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.attacks import answered_as_expected, no_replica_exits
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.ends import all_ok, ended_with
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Replica
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios import _hostile
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

METHOD = "victim:echo"
REGISTRATIONS = 10_000
MAX_METHODS = 1000
"""RPC_MAX_METHODS_PER_SOCKET."""
MAX_IN_FLIGHT = 256
"""RPC_MAX_IN_FLIGHT_PER_SOCKET."""
BIG = 1_200_000
"""Over MAX_PAYLOAD_BYTES 1000000."""


class HostileClient(Scenario):
    name = "hostile-client"
    promise = "junk packets, wrong types, floods, other accounts' data: no replica exits, nothing leaks, typed limits"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("crash-on-junk", "answer-other-account", "no-limits")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        clients = ctx.clients
        victim, attacker = clients.account(), clients.account()
        daemon = await clients.daemon(victim, METHOD, where=places[0])
        caller = await clients.caller(victim, places[1])
        await clients.token(attacker)
        _note_replicas(ctx, "before")

        over = asyncio.Event()

        async def victim_calls(n: int) -> None:
            await caller.call(METHOD, target=daemon, group="victim", timeout_ms=10_000)

        load = clients.start(play(every(25, 60_000), victim_calls, until=over.is_set))
        for name, attack in (
            ("packets", self._packets(clients, attacker, places)),
            ("payloads", self._payloads(clients, attacker, places)),
            ("calls", self._calls(clients, attacker, places[1])),
            ("limits", self._limits(clients, attacker, places[1])),
            ("handshakes", self._handshakes(clients, places)),
            ("trespass", self._trespass(clients, attacker, victim, places)),
            ("http", self._http(clients, attacker, places)),
        ):
            ctx.progress(name)
            try:
                await attack
            except (ConnectionError, TimeoutError) as error:
                # A replica that does not let us in any more is what this row looks for, not the row's own
                # end.
                ctx.history.note("attack-broken", kind=name, error=f"{type(error).__name__}: {error}")
        over.set()
        await load
        await asyncio.sleep(0.2)
        _note_replicas(ctx, "after")

    async def _packets(self, clients: Clients, account: Account, places: list[Replica]) -> None:
        for i, packet in enumerate(_hostile.PACKETS):
            socket = await _raw(clients, account, places[i % len(places)])
            socket.send_text(packet)
            # What follows on the same connection must not be worse for it.
            socket.emit("ping", None)
            await asyncio.sleep(0.01)
            socket.cut()
            clients.history.note("attack-sent", kind="packet")
        socket = await _raw(clients, account, places[0])
        socket.send_text(b"42" + b'["message","' + b"x" * BIG + b'"]')
        await asyncio.sleep(0.1)
        socket.cut()

    async def _payloads(self, clients: Clients, account: Account, places: list[Replica]) -> None:
        socket = await _raw(clients, account, places[0])
        for event in _hostile.EVENTS:
            for payload in _hostile.PAYLOADS:
                if socket.closed:
                    socket = await _raw(clients, account, places[0])
                socket.emit(event, payload)
                socket.emit(event, payload, ack=lambda _: None)
                socket.emit(event, payload, payload, payload)
                clients.history.note("attack-sent", kind="payload")
            socket.emit(event)
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        socket.cut()

    async def _calls(self, clients: Clients, account: Account, place: Replica) -> None:
        caller = await clients.caller(account, place)
        for what, payload in _hostile.BAD_CALLS:
            operation = clients.history.begin(
                "attack", process=caller.name, what=f"rpc-call: {what}", expected="invalid_params"
            )
            await caller.ask(operation, "rpc-call", payload, 1000)

    async def _limits(self, clients: Clients, account: Account, place: Replica) -> None:
        slow = await clients.daemon(account, "attacker:slow", where=place)
        caller = await clients.caller(account, place)
        calls = [
            caller.call("attacker:slow", target=slow, sleep_ms=300, timeout_ms=5000, group="flood")
            for _ in range(MAX_IN_FLIGHT + 50)
        ]
        await together(calls)
        socket = await _raw(clients, account, place)
        answers: list[Any] = []
        for i in range(REGISTRATIONS):
            socket.emit("rpc-register", {"method": f"many:{i}"}, ack=answers.extend)
            if i % 500 == 499:
                await asyncio.sleep(0.005)
        operation = clients.history.begin(
            "attack", what=f"{REGISTRATIONS} registrations", expected="Too many methods"
        )
        try:
            await clients.until(
                lambda: len(answers) >= REGISTRATIONS or socket.closed, 10, "answers to registrations"
            )
        except TimeoutError:
            operation.info(got=f"{len(answers)} answers")
        accepted = sum(isinstance(a, dict) and a.get("ok") is True for a in answers)
        errors = {str(a.get("error")) for a in answers if isinstance(a, dict) and a.get("ok") is False}
        operation.ok(got=", ".join(sorted(errors)))
        limit = clients.history.begin("attack", what="registrations accepted", expected=str(MAX_METHODS))
        limit.ok(got=str(accepted))
        socket.cut()

    async def _handshakes(self, clients: Clients, places: list[Replica]) -> None:
        async def attempt(auth: Any, expected: str) -> None:
            operation = clients.history.begin("attack", what=f"handshake {auth!r}", expected=expected)
            try:
                socket = await raw.connect(places[0].url, auth, timeout=3)
            except raw.ConnectRefused as refused:
                operation.ok(got=str(refused))
            except (ConnectionError, TimeoutError) as error:
                operation.ok(got=f"closed: {type(error).__name__}")
            else:
                socket.cut()
                operation.ok(got="accepted")

        await together(attempt(auth, message) for auth, message in _hostile.BAD_HANDSHAKES)
        await together(attempt(auth, "any refusal") for auth in _hostile.ODD_HANDSHAKES)

    async def _trespass(
        self, clients: Clients, attacker: Account, victim: Account, places: list[Replica]
    ) -> None:
        history = clients.history
        _, body = await clients.request("POST", "/v1/sessions", {"tag": "t", "metadata": "m"}, account=victim)
        session = body["session"]["id"] if isinstance(body, dict) and "session" in body else "unknown"
        thief = await clients.caller(attacker, places[1])
        await thief.call(METHOD, timeout_ms=300, group="foreign-method")
        for verb, path in (
            ("GET", f"/v1/sessions/{session}/messages"),
            ("DELETE", f"/v1/sessions/{session}"),
        ):
            operation = history.begin("attack", what=f"{verb} of a foreign session", expected="404")
            status, _ = await clients.request(verb, path, account=attacker)
            operation.ok(got=str(status))
        operation = history.begin("attack", what="message to a foreign session", expected="Session not found")
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        thief.send("message", {"sid": session, "message": "stolen"}, answer.set_result)
        async with asyncio.timeout(5):
            said = (await answer)[0]
        operation.ok(got=str(said.get("error")) if isinstance(said, dict) else repr(said))
        # The attacker registers the victim's method and session, and listens; the victim's calls go on
        # meanwhile.
        mimic = await clients.daemon(attacker, METHOD, where=places[0])
        await clients.client(attacker, "spy", clientType="session-scoped", sessionId=session).connect(
            places[0]
        )
        owner = await clients.caller(victim, places[1])
        call = clients.start(owner.call(METHOD, sleep_ms=400, request_id="shared-id", group="victim"))
        await asyncio.sleep(0.1)
        thief.send("rpc-cancel", {"requestId": "shared-id"})
        await clients.emit(
            victim,
            "update",
            {"type": "all-interested-in-session", "sessionId": session},
            expect=[c for c in clients.made if c.account is victim and "clientType" not in c.auth],
        )
        await call
        await mimic.close()

    async def _http(self, clients: Clients, account: Account, places: list[Replica]) -> None:
        cases: tuple[tuple[str, str, Any, str], ...] = (
            ("POST", "/v1/auth", {"publicKey": 1}, "4xx"),
            ("POST", "/v1/auth", {"publicKey": "AA==", "challenge": "AA==", "signature": "AA=="}, "401"),
            ("POST", "/v1/emit", {"event": "rm", "filter": {}, "body": {}}, "4xx"),
            ("POST", "/v1/emit", [], "4xx"),
            ("POST", "/v1/sessions", {"tag": 5}, "4xx"),
            ("GET", "/v1/sessions/%00%ff/messages?after_seq=x&limit=-1", None, "4xx"),
            ("GET", "/v1/sessions/" + "x" * 2000 + "/messages", None, "4xx"),
        )
        for verb, path, body, expected in cases:
            operation = clients.history.begin("attack", what=f"{verb} {path[:40]}", expected=expected)
            status, _ = await clients.request(verb, path, body, account=account, where=places[0])
            operation.ok(got="4xx" if expected == "4xx" and 400 <= status < 500 else str(status))

    def check(self, history: History) -> list[Promise]:
        def sent(history: History) -> float:
            return len(history.notes("attack-sent")) + len(history.pairs("attack"))

        return judge(
            history,
            (
                reached("attacks", 200, "attacks", sent),
                no_replica_exits(),
                answered_as_expected(30),
                all_ok("calls of the victim", 50, group="victim"),
                ended_with("calls to a foreign method", "not_available", 1, group="foreign-method"),
                _overloaded,
            ),
        )


def _overloaded(history: History) -> list[Promise]:
    """Of the flood, what is over the limit is refused typed; the rest succeeds."""
    pairs = [p for p in history.pairs("call") if p.value.get("group") == "flood"]
    refused = sum(p.result.get("code") == "overloaded" for p in pairs)
    good = sum(p.phase == "ok" for p in pairs)
    bar = f"{MAX_IN_FLIGHT} ok, {len(pairs) - MAX_IN_FLIGHT} overloaded"
    right = good == MAX_IN_FLIGHT and good + refused == len(pairs)
    return [
        Promise(
            "calls in flight on one socket",
            bar,
            f"{good} ok, {refused} overloaded",
            "",
            "passed" if right else "failed",
        )
    ]


async def _raw(clients: Clients, account: Account, place: Replica) -> raw.RawSocket:
    return await raw.connect(place.url, {"token": await clients.token(account)})


def _note_replicas(ctx: Context, when: str) -> None:
    ids = [replica.id for replica in ctx.driver.replicas if replica.state != "dead"]
    ctx.history.note("replicas", when=when, ids=ids)
