"""Load clients whose every operation is in the history: invoke, then ok, fail or info; one attempt each.

:class:`Clients` makes them for a row; :class:`Client` is a socket that can call, serve and receive, over
either wire of :mod:`moorage_chaos.wires`. Clients of ``moorage.client`` are in :mod:`moorage_chaos.ours`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

import aiohttp

from moorage_chaos.accounts import Account
from moorage_chaos.client import Client
from moorage_chaos.drivers.base import Driver, Replica
from moorage_chaos.history import History, Operation
from moorage_chaos.lag import LagMeter
from moorage_chaos.wires import PlainWire, RawWire, Wire

Kind = Literal["raw", "plain"]

HTTP_TIMEOUT_S = 5.0


class Clients:
    """Everything that loads the system in one row. Tasks, sockets and HTTP connections end with
    :meth:`close`.
    """

    def __init__(self, driver: Driver, history: History, rng: random.Random) -> None:
        self.driver = driver
        self.history = history
        self.random = rng
        self.made: list[Client] = []
        """Every client of the row, in the order they were made."""
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._names: dict[str, int] = {}
        self._http: aiohttp.ClientSession | None = None
        self._lag = LagMeter(history)
        self._lag.start()

    # -- making --------------------------------------------------------------------------------------------
    def name(self, stem: str) -> str:
        """A name nobody has yet: ``daemon-1``, ``daemon-2``, …"""
        self._names[stem] = self._names.get(stem, 0) + 1
        return f"{stem}-{self._names[stem]}"

    def account(self) -> Account:
        return Account(self.name("account"))

    async def token(self, account: Account) -> str:
        """The account's token, asked for once. Raises ConnectionError if the server refuses."""
        if not account.token:
            status, body = await self.request("POST", "/v1/auth", account.proof())
            if status != 200 or not isinstance(body, dict) or not body.get("token"):
                raise ConnectionError(f"/v1/auth answered {status} {body!r}")
            account.token = str(body["token"])
        return account.token

    def client(self, account: Account, stem: str = "client", *, kind: Kind = "raw", **auth: Any) -> Client:
        """A client that is not connected yet; ``auth`` goes into the handshake (``clientType``,
        ``machineId``, …).
        """
        wire: Wire = RawWire() if kind == "raw" else PlainWire()
        made = Client(self, self.name(stem), account, wire, auth, kind)
        self.made.append(made)
        return made

    async def caller(self, account: Account, where: Replica | None = None, *, kind: Kind = "raw") -> Client:
        """A connected user-scoped client."""
        return await self.client(account, "caller", kind=kind).connect(where)

    async def daemon(
        self,
        account: Account,
        *methods: str,
        where: Replica | None = None,
        kind: Kind = "raw",
        resumable: bool = False,
    ) -> Client:
        """A connected machine-scoped client that serves ``methods``."""
        name = self.name("machine")
        made = self.client(account, "daemon", kind=kind, clientType="machine-scoped", machineId=name)
        await made.connect(where)
        return await made.serve(*methods, resumable=resumable)

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Awaited by :meth:`close`, for what was made elsewhere."""
        self._closers.append(closer)

    def front(self) -> str:
        return self.driver.url

    # -- HTTP ----------------------------------------------------------------------------------------------
    async def request(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        account: Account | None = None,
        where: Replica | None = None,
        timeout_s: float = HTTP_TIMEOUT_S,
    ) -> tuple[int, Any]:
        """One HTTP request: status and decoded body. Raises ConnectionError or TimeoutError; not recorded."""
        if self._http is None:
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        headers = {"Authorization": f"Bearer {await self.token(account)}"} if account is not None else {}
        url = (where.url if where is not None else self.driver.url) + path
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._http.request(verb, url, json=body, headers=headers, timeout=timeout) as answer:
                kind = answer.headers.get("content-type", "")
                return answer.status, await (answer.json() if "json" in kind else answer.text())
        except aiohttp.ClientError as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    async def emit(
        self,
        account: Account,
        event: Literal["update", "ephemeral"],
        filter_: dict[str, Any],
        *,
        expect: list[Client],
        where: Replica | None = None,
        skip: Client | None = None,
        pad: int = 0,
        **tags: Any,
    ) -> Operation:
        """``POST /v1/emit``, marked so that every copy can be told; ``expect`` are those who must get it
        once.
        """
        operation = self.history.begin(
            "emit", event=event, filter=filter_, account=account.name, expect=[c.name for c in expect], **tags
        )
        body: dict[str, Any] = {"mark": operation.id, "owner": account.name, "pad": "x" * pad}
        body["t" if event == "update" else "type"] = "mark"
        request: dict[str, Any] = {"event": event, "filter": filter_, "body": body}
        request |= {"skipSocketId": skip.sid} if skip is not None else {}
        try:
            status, answer = await self.request("POST", "/v1/emit", request, account=account, where=where)
        except (ConnectionError, TimeoutError) as error:
            operation.info(error=f"{type(error).__name__}: {error}")
            return operation
        seq = answer.get("seq") if isinstance(answer, dict) else None
        (
            operation.ok
            if status == 202
            else operation.fail
            if status in (401, 404, 422, 503)
            else operation.info
        )(status=status, seq=seq)
        return operation

    # -- waiting and ending --------------------------------------------------------------------------------
    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that ends with the row."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def until(self, reached: Callable[[], bool], bound_s: float, what: str) -> None:
        """Wait for a condition of the harness's own. Raises TimeoutError that says ``what``."""
        try:
            async with asyncio.timeout(bound_s):
                while not reached():  # noqa: ASYNC110 - a condition over many clients has no one event
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise TimeoutError(f"not within {bound_s:g} s: {what}") from None

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        work = [client.close() for client in self.made] + [closer() for closer in self._closers]
        await asyncio.gather(*work, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        await self._lag.stop()
