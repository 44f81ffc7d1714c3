"""Is somebody looking? Asked on every replica."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from moorage_chaos.accounts import Account
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.presence import answers_right, no_flap
from moorage_chaos.client import Client
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

CASES = 9
FLAP_ROUNDS = 10


class Presence(Scenario):
    name = "presence"
    promise = "has_active_ui_client is right in 9 cases from every replica, and never flaps while a newer socket lives"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("presence-local", "presence-flap")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        clients = ctx.clients

        async def ask(account: Account, case: str, expected: bool) -> None:
            for place in places:
                operation = ctx.history.begin("presence", case=case, expected=expected, link=place.link)
                try:
                    status, body = await clients.request("GET", "/v1/presence", account=account, where=place)
                except (ConnectionError, TimeoutError) as error:
                    operation.info(error=repr(error))
                    continue
                operation.ok(
                    active=body.get("active") if status == 200 and isinstance(body, dict) else repr(body)
                )

        async def user(account: Account, i: int, state: str | None, **auth: str) -> Client:
            more: dict[str, Any] = {"appState": state, **auth} if state else {**auth}
            return await clients.client(account, "ui", **more).connect(places[i % len(places)])

        async def report(socket: Client, state: str) -> None:
            done = asyncio.Event()
            socket.send("app-state", {"state": state})
            # Events of one socket are handled in order: when the ping is answered, the state is known.
            socket.send("ping", None, lambda _: done.set())
            async with asyncio.timeout(5):
                await done.wait()

        async def leave(socket: Client) -> None:
            await socket.close()

        account = clients.account()
        await ask(account, "nobody", False)
        quiet = await user(account, 0, "background")
        await ask(account, "only background", False)
        silent = await user(account, 0, None)
        await ask(account, "no state reported", False)
        await user(account, 1, "active", clientType="machine-scoped", machineId="m")
        await ask(account, "an active machine is no user", False)
        await user(account, 0, "active", clientType="session-scoped", sessionId="s")
        await ask(account, "an active session is no user", False)
        await report(silent, "active")
        await ask(account, "became active", True)
        await report(silent, "background")
        await ask(account, "became background", False)
        elsewhere = await user(account, 1, "active")
        await ask(account, "active elsewhere", True)
        await leave(elsewhere)
        await leave(quiet)
        await asyncio.sleep(0.1)
        await ask(account, "the active one left", False)

        newest = await user(account, 0, "active")
        for i in range(FLAP_ROUNDS):
            newer = await user(account, i + 1, "active")
            await leave(newest)
            await ask(account, "flap", True)
            newest = newer

    def check(self, history: History) -> list[Promise]:
        return judge(history, (answers_right(CASES), no_flap("flap", FLAP_ROUNDS)))
