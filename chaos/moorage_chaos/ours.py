"""Clients of ``moorage.client`` under record: the product's own Daemon and Caller, unchanged, with a history
beside.

They come back by themselves, so ``connect``, ``register`` and ``down`` are recorded from their hooks as they
happen.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from moorage.client import Caller, Daemon, RpcError
from moorage.client.socket import Socket
from moorage_chaos.accounts import Account
from moorage_chaos.client import Named
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Replica
from moorage_chaos.history import Operation

CONNECT_S = 10.0


class _Journal:
    """Records the life of the connections of one client."""

    def __init__(self, clients: Clients, name: str, account: Account) -> None:
        self.history = clients.history
        self.name = name
        self.account = account
        self.registering: dict[tuple[Socket, str], Operation] = {}

    def opened(self, socket: Socket, methods: list[str]) -> None:
        operation = self.history.begin("connect", process=self.name, client=self.name, kind="ours")
        operation.ok(sid=socket.sid_shown, replica=socket.replica or "", recovered=socket.recovered)
        for method in methods:
            self.registering[socket, method] = self.history.begin(
                "register", process=self.name, client=self.name, method=method, replica=socket.replica or ""
            )

    def registered(self, socket: Socket, payload: Any) -> None:
        method = str(payload.get("method")) if isinstance(payload, dict) else ""
        operation = self.registering.pop((socket, method), None)
        if operation is not None:
            operation.ok(scope=payload.get("scope"))

    def lost(self, socket: Socket) -> None:
        self.history.note(
            "down",
            process=self.name,
            client=self.name,
            sid=socket.sid_shown,
            replica=socket.replica or "",
            cause="close" if socket.closing else "transport",
        )
        for key in [key for key in self.registering if key[0] is socket]:
            self.registering.pop(key).info(code="connection_lost")


class OurDaemon(Daemon):
    """Made by :func:`daemon`. ``name`` and ``home`` are for histories."""

    def __init__(self, journal: _Journal, url: str, token: str, **connection: Any) -> None:
        super().__init__(url, token, **connection)
        self.journal = journal
        self.name = journal.name

    @property
    def home(self) -> str:
        """Id of the replica in use, empty while there is none."""
        return self.replica or ""

    def add_echo(self, method: str, *, resumable: bool = False) -> None:
        """Serve ``method`` as every load daemon does: sleep as told, say whose call was answered and
        where.
        """

        async def handler(params: Any) -> dict[str, Any]:
            params = params if isinstance(params, dict) else {}
            run = self.journal.history.begin(
                "run",
                process=self.name,
                daemon=self.name,
                replica=self.home,
                account=self.journal.account.name,
                method=method,
                call=params.get("call"),
                owner=params.get("owner"),
            )
            try:
                await asyncio.sleep(params.get("sleepMs", 0) / 1000)
            except asyncio.CancelledError:
                run.info(cancelled=True)
                raise
            run.ok()
            owner = self.journal.account.name
            return {"call": params.get("call"), "owner": owner, "by": self.name, "byReplica": self.home}

        self.add_method(method, handler, resumable=resumable)

    def _opened(self, socket: Socket) -> None:
        self.journal.opened(socket, [name for name, method in self._methods.items() if method.claimed])
        super()._opened(socket)

    def _registered_event(self, socket: Socket, payload: Any) -> None:
        self.journal.registered(socket, payload)
        super()._registered_event(socket, payload)

    def _lost(self, socket: Socket) -> None:
        self.journal.lost(socket)
        super()._lost(socket)

    def cut(self) -> None:
        """Abort the TCP connection in use, as a broken network does; a ``cut`` note tells when."""
        self.journal.history.note("cut", process=self.name, client=self.name)
        _abort(self._socket)


class OurCaller(Caller):
    """Made by :func:`caller`."""

    def __init__(self, journal: _Journal, url: str, token: str, **connection: Any) -> None:
        super().__init__(url, token, **connection)
        self.journal = journal
        self.name = journal.name

    def _opened(self, socket: Socket) -> None:
        self.journal.opened(socket, [])
        super()._opened(socket)

    def _lost(self, socket: Socket) -> None:
        self.journal.lost(socket)
        super()._lost(socket)

    def cut(self) -> None:
        """Abort the TCP connection in use, as a broken network does; a ``cut`` note tells when."""
        self.journal.history.note("cut", process=self.name, client=self.name)
        _abort(self._socket)

    async def invoke(
        self,
        method: str,
        *,
        target: OurDaemon | Named | None = None,
        timeout_ms: float | None = None,
        sleep_ms: float = 0,
        on_lost: Literal["fail", "wait"] = "fail",
        request_id: str | None = None,
        **tags: Any,
    ) -> Operation:
        """One recorded call; returns its ended operation and never raises for what the server does."""
        value: dict[str, Any] = {"caller": self.name, "callerReplica": self.replica or "", "method": method}
        value["account"] = self.journal.account.name
        if target is not None:
            value["target"] = target.name
            value["targetReplica"] = target.home if isinstance(target, OurDaemon) else target.replica
        if timeout_ms is not None:
            value["timeoutMs"] = timeout_ms
        operation = self.journal.history.begin("call", process=self.name, **value, **tags)
        params = {"call": operation.id, "owner": self.journal.account.name, "sleepMs": sleep_ms}
        timeout = timeout_ms / 1000 if timeout_ms is not None else None
        try:
            result = await self.call(
                method, params, timeout=timeout, on_target_lost=on_lost, request_id=request_id
            )
        except RpcError as error:
            code = "caller_lost" if error.code == "connection_lost" else error.code
            end = operation.fail if error.delivered == "no" else operation.info
            end(code=code, error=error.error, delivered=error.delivered)
        else:
            answer = result if isinstance(result, dict) else {}
            operation.ok(
                answered=answer.get("call"), **{k: answer.get(k) for k in ("owner", "by", "byReplica")}
            )
        return operation


def _abort(socket: Socket | None) -> None:
    connection = getattr(getattr(getattr(socket, "eio", None), "ws", None), "_conn", None)
    transport = getattr(connection, "transport", None)
    if transport is not None:
        transport.abort()


async def daemon(
    clients: Clients, account: Account, *methods: str, where: Replica | None = None, resumable: bool = False
) -> OurDaemon:
    """A connected daemon of ours that serves ``methods``. Raises ClientError after 10 s."""
    url = where.url if where is not None else clients.front()
    journal = _Journal(clients, clients.name("our-daemon"), account)
    made = OurDaemon(journal, url, await clients.token(account), machine_id=journal.name)
    for method in methods:
        made.add_echo(method, resumable=resumable)
    await made.start()
    clients.on_close(lambda: made.stop(grace=0))
    await made.connected(CONNECT_S)
    await made.registered(CONNECT_S, cluster=True)
    return made


async def caller(clients: Clients, account: Account, *, where: Replica | None = None) -> OurCaller:
    """A connected caller of ours. Raises ClientError after 10 s."""
    url = where.url if where is not None else clients.front()
    journal = _Journal(clients, clients.name("our-caller"), account)
    made = OurCaller(journal, url, await clients.token(account))
    await made.start()
    clients.on_close(lambda: made.stop(grace=0))
    await made.connected(CONNECT_S)
    return made
