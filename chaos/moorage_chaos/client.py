"""A load client: one socket whose every operation is in the history, one attempt each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from moorage_chaos.accounts import Account
from moorage_chaos.drivers.base import Replica
from moorage_chaos.history import History, Operation
from moorage_chaos.wires import Answer, Wire

Behaviour = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

NO_ANSWER_S = 2.0
"""A call that has no answer this long after its last possible end is unaccounted for, and recorded so."""
DEFAULT_CALL_S = 45.0
"""Last possible end of a call without ``timeoutMs``: grace 15 s and RPC_CALL_TIMEOUT_MS 30 s (PROTOCOL, RPC 3
and 4).
"""


class Named(Protocol):
    """What a call needs to know of its target."""

    @property
    def name(self) -> str: ...

    @property
    def replica(self) -> str: ...


class Owner(Protocol):
    """What a client needs of :class:`moorage_chaos.clients.Clients`."""

    history: History

    async def token(self, account: Account) -> str: ...

    def front(self) -> str:
        """URL of the front."""

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    async def until(self, reached: Callable[[], bool], bound_s: float, what: str) -> None: ...


class Client:
    """One socket of one account. Made by ``Clients.client``."""

    def __init__(
        self, owner: Owner, name: str, account: Account, wire: Wire, auth: dict[str, Any], kind: str
    ) -> None:
        self.name = name
        self.account = account
        self.auth = auth
        self.kind = kind
        self.up = False
        self.downs = 0
        self.registered: dict[str, str] = {}
        """Method to scope, as told by ``rpc-registered`` on the present connection."""
        self.received: list[tuple[str, Any]] = []
        """``(event, body)`` of everything but RPC, oldest first."""
        self.behaviours: dict[str, Behaviour] = {}
        self.quiet: set[str] = set()
        """Events that are counted only, for floods."""
        self.counts: dict[str, int] = {}
        self._owner = owner
        self._history = owner.history
        self._wire = wire
        self._methods: dict[str, bool] = {}
        self._registering: dict[str, Operation] = {}
        self._calls: dict[Operation, asyncio.Future[Operation]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._connecting: Operation | None = None
        self._link = ""
        self._who = {"client": name, "kind": kind, "scope": auth.get("clientType", "user-scoped")}
        wire.on_event = self._on_event
        wire.on_up = self._on_up
        wire.on_down = self._on_down

    @property
    def sid(self) -> str:
        return str(self._wire.hello.get("sid", ""))

    @property
    def replica(self) -> str:
        """Id of the replica that this socket is, or was last, connected to."""
        return str(self._wire.hello.get("replica", self._link))

    @property
    def wire(self) -> Wire:
        return self._wire

    # -- connection ----------------------------------------------------------------------------------------
    async def connect(self, where: Replica | None = None) -> Client:
        """One attempt, to that replica or through the front. Raises ConnectionError or TimeoutError."""
        token = await self._owner.token(self.account)
        self._link = where.link if where is not None else ""
        operation = self._history.begin("connect", process=self.name, **self._who)
        self._connecting = operation
        try:
            url = where.url if where is not None else self._owner.front()
            await self._wire.open(url, {"token": token, "client": f"chaos-{self.name}", **self.auth})
        except BaseException as error:
            operation.fail(error=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._connecting = None
        return self

    def _on_up(self) -> None:
        operation = self._connecting or self._history.begin(
            "connect", process=self.name, **self._who, again=True
        )
        self._connecting = None
        self.up = True
        operation.ok(sid=self.sid, replica=self.replica, link=self._link)
        for method, resumable in list(self._methods.items()):
            self._send_register(method, resumable)

    def _on_down(self, cause: str) -> None:
        if not self.up:
            return
        self.up = False
        self.downs += 1
        self.registered.clear()
        self._history.note(
            "down",
            process=self.name,
            client=self.name,
            sid=self.sid,
            replica=self.replica,
            link=self._link,
            cause=cause,
        )
        for operation, future in list(self._calls.items()):
            operation.info(code="caller_lost", delivered="unknown")
            _resolve(future, operation)
        self._calls.clear()

    async def close(self) -> None:
        """Leave in order."""
        self._on_down("close")
        await self._wire.close()

    def cut(self) -> None:
        """Drop the TCP connection without a word."""
        self._on_down("cut")
        self._wire.cut()

    # -- serving -------------------------------------------------------------------------------------------
    def register(self, method: str, *, resumable: bool = False, behaviour: Behaviour | None = None) -> None:
        """Send ``rpc-register`` now; again by itself on each later connection, as an application does on
        connect.
        """
        self._methods[method] = resumable
        if behaviour is not None:
            self.behaviours[method] = behaviour
        self._send_register(method, resumable)

    def _send_register(self, method: str, resumable: bool) -> None:
        if method not in self._registering:
            self._registering[method] = self._history.begin(
                "register", process=self.name, client=self.name, method=method, replica=self.replica
            )
        self._wire.emit("rpc-register", {"method": method, **({"resumable": True} if resumable else {})})

    def forget(self, method: str) -> None:
        """Do not register it on later connections."""
        self._methods.pop(method, None)

    async def serve(self, *methods: str, resumable: bool = False, bound_s: float = 5.0) -> Client:
        """Register and wait for every ``rpc-registered``. Raises TimeoutError."""
        for method in methods:
            self.register(method, resumable=resumable)
        await self._owner.until(
            lambda: all(m in self.registered for m in methods), bound_s, f"{self.name} registered"
        )
        return self

    def _on_event(self, event: str, args: list[Any], answer: Answer) -> None:
        body = args[0] if args else None
        if event == "rpc-request":
            self._serve(body, answer)
        elif event == "rpc-registered" and isinstance(body, dict):
            self.registered[body["method"]] = body.get("scope", "")
            operation = self._registering.pop(body["method"], None)
            if operation is not None:
                operation.ok(scope=body.get("scope"))
        elif event == "rpc-cancel" and isinstance(body, dict):
            self._cancelled(str(body.get("requestId")))
        elif event in self.quiet:
            self.counts[event] = self.counts.get(event, 0) + 1
        else:
            self.received.append((event, body))
            self._note_received(event, body)

    def _note_received(self, event: str, body: Any) -> None:
        value: dict[str, Any] = {"client": self.name, "account": self.account.name, "event": event}
        if isinstance(body, dict):
            inner = body.get("body") if event == "update" else body
            if event == "update":
                value.update(seq=body.get("seq"), id=body.get("id"))
            if isinstance(inner, dict):
                # Updates name their kind "t"; a note's own `t` is its time.
                kind = {"type": inner["t"]} if "t" in inner else {}
                keys = ("mark", "owner", "type", "method")
                value.update(kind | {key: inner[key] for key in keys if key in inner})
        self._history.note("received", process=self.name, **value)

    def _serve(self, request: Any, answer: Answer) -> None:
        params = request.get("params") if isinstance(request, dict) else None
        params = params if isinstance(params, dict) else {}
        method, request_id = str(request.get("method")), str(request.get("requestId"))
        run = self._history.begin(
            "run",
            process=self.name,
            daemon=self.name,
            replica=self.replica,
            account=self.account.name,
            method=method,
            requestId=request_id,
            call=params.get("call"),
            owner=params.get("owner"),
        )
        if method in self.behaviours or params.get("sleepMs"):
            task = self._owner.start(self._run_slowly(method, params, run, answer))
            self._running[request_id] = task
            task.add_done_callback(lambda _: self._running.pop(request_id, None))
            # Here, not in the task: one that is cancelled before its first step has an end, too.
            task.add_done_callback(lambda task: run.info(cancelled=True) if task.cancelled() else None)
        else:
            run.ok()
            answer(self.result(params))

    def result(self, params: dict[str, Any]) -> dict[str, Any]:
        """What a handler returns: whose call it answered, who answered, and where."""
        return {
            "call": params.get("call"),
            "owner": self.account.name,
            "by": self.name,
            "byReplica": self.replica,
        }

    async def _run_slowly(self, method: str, params: dict[str, Any], run: Operation, answer: Answer) -> None:
        await asyncio.sleep(params.get("sleepMs", 0) / 1000)
        behaviour = self.behaviours.get(method)
        more = await behaviour(params) if behaviour is not None else {}
        run.ok()
        answer({**self.result(params), **more})

    def _cancelled(self, request_id: str) -> None:
        self._history.note("cancelled", process=self.name, daemon=self.name, requestId=request_id)
        task = self._running.get(request_id)
        if task is not None:
            task.cancel()

    # -- calling -------------------------------------------------------------------------------------------
    async def call(
        self,
        method: str,
        *,
        target: Named | None = None,
        timeout_ms: float | None = None,
        sleep_ms: float = 0,
        request_id: str | None = None,
        on_lost: str | None = None,
        params: dict[str, Any] | None = None,
        **tags: Any,
    ) -> Operation:
        """One call, one attempt; returns its ended operation, never raises for what the server does.

        ``sleep_ms`` is how long the handler takes; ``tags`` go into the invoke for checkers to select by.
        """
        value: dict[str, Any] = {
            "caller": self.name,
            "callerReplica": self.replica,
            "account": self.account.name,
            "method": method,
        }
        if target is not None:
            value.update(target=target.name, targetReplica=target.replica)
        if timeout_ms is not None:
            value["timeoutMs"] = timeout_ms
        operation = self._history.begin("call", process=self.name, **value, **tags)
        body = {"call": operation.id, "owner": self.account.name, "sleepMs": sleep_ms, **(params or {})}
        payload: dict[str, Any] = {"method": method, "params": body}
        payload |= {"timeoutMs": timeout_ms} if timeout_ms is not None else {}
        payload |= {"requestId": request_id} if request_id is not None else {}
        payload |= {"onTargetLost": on_lost} if on_lost is not None else {}
        return await self.ask(operation, "rpc-call", payload, timeout_ms)

    async def ask(
        self, operation: Operation, event: str, payload: Any, timeout_ms: float | None = None
    ) -> Operation:
        """Send ``event`` with an ack and end ``operation`` by the answer, the loss of the connection, or the
        bound.
        """
        if not self.up:
            operation.fail(code="caller_lost", delivered="no")
            return operation
        future: asyncio.Future[Operation] = asyncio.get_running_loop().create_future()
        self._calls[operation] = future

        def on_ack(args: list[Any]) -> None:
            end_call(operation, args[0] if args else None)
            _resolve(future, operation)

        self._wire.emit(event, payload, on_ack)
        bound = (timeout_ms / 1000 if timeout_ms is not None else DEFAULT_CALL_S) + NO_ANSWER_S
        try:
            async with asyncio.timeout(bound):
                return await future
        except TimeoutError:
            operation.info(code="unaccounted", delivered="unknown", afterS=bound)
            return operation
        finally:
            self._calls.pop(operation, None)

    def send(self, event: str, payload: Any, on_ack: Callable[[list[Any]], None] | None = None) -> None:
        """Send any event; not recorded."""
        self._wire.emit(event, payload, on_ack)


def _resolve(future: asyncio.Future[Operation], operation: Operation) -> None:
    if not future.done():
        future.set_result(operation)


def end_call(operation: Operation, answer: Any) -> None:
    """End a call by the server's ack: ok, ``fail`` (certainly not delivered) or ``info``."""
    if isinstance(answer, dict) and answer.get("ok") is True:
        result = answer.get("result")
        if isinstance(result, dict) and "call" in result:
            extra = {key: result[key] for key in ("owner", "by", "byReplica") if key in result}
            operation.ok(answered=result["call"], **extra)
        else:
            operation.ok(result=result)
        return
    if not isinstance(answer, dict) or not isinstance(answer.get("code"), str):
        operation.info(code="untyped", answer=repr(answer)[:200], delivered="unknown")
        return
    value = {key: answer.get(key) for key in ("code", "error", "delivered")}
    (operation.fail if answer.get("delivered") == "no" else operation.info)(**value)
