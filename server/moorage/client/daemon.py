"""A daemon: serves methods to the account's callers, on whatever replica it and they are."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from moorage.client.connection import Connection
from moorage.client.errors import RegistrationError, Unreachable
from moorage.client.runs import Results, Run
from moorage.client.signin import Token
from moorage.client.socket import Socket

log = logging.getLogger("moorage.client")

MAX_METHOD_CHARS = 256
"""Longest method name (PROTOCOL, RPC 1)."""

Scope = Literal["cluster", "local"]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True, eq=False)
class _Method:
    handler: Callable[[Any], Any]
    resumable: bool
    claimed: bool = True
    error: str | None = None


class Daemon(Connection):
    """Serves methods; registers them anew on every connection.

    Keywords as for :class:`Connection`, and: ``concurrency``: handlers at work at once, the rest waits in
    order (None: no limit). ``keep_results`` and ``keep_results_s`` [s]: how many results of resumable
    methods are kept and for how long; the longest call there is takes 600 s."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        concurrency: int | None = None,
        keep_results: int = 1000,
        keep_results_s: float = 600.0,
        recover: bool = False,
        **connection: Any,
    ) -> None:
        super().__init__(url, token, recover=recover, **connection)
        self._methods: dict[str, _Method] = {}
        self._scopes: dict[Socket, dict[str, Scope]] = {}
        self._runs: dict[str, Run] = {}
        self._results = Results(keep_results, keep_results_s)
        self._slots: asyncio.Semaphore | contextlib.nullcontext[None] = (
            asyncio.Semaphore(concurrency) if concurrency is not None else contextlib.nullcontext()
        )
        self._reclaiming: set[tuple[Socket, str]] = set()
        """Registered anew on a connection that had registered them before, and not answered yet."""
        self._on_superseded: list[Callable[[str], Any]] = []

    # -- methods ---------------------------------------------------------------------------------------------

    def method(self, name: str, *, resumable: bool = False) -> Callable[[F], F]:
        """Serve ``name`` with the decorated function; see :meth:`add_method`."""

        def decorate(handler: F) -> F:
            self.add_method(name, handler, resumable=resumable)
            return handler

        return decorate

    def add_method(self, name: str, handler: Callable[[Any], Any], *, resumable: bool = False) -> None:
        """Serve ``name`` with ``handler(params)``, now and on every later connection; also to claim it again.

        An async handler runs on the loop, a sync one in a thread. What it returns, as JSON, is the call's
        result. An exception becomes the result ``{"error": "<ExceptionType>: <text>"}``: the call itself
        has succeeded, since the protocol knows no error code of handlers. ``resumable`` promises that one
        request id runs once: if the request comes again it joins the run or gets the kept result."""
        if not isinstance(name, str) or not 0 < len(name) <= MAX_METHOD_CHARS:
            raise ValueError(f"a method's name is a string of 1 to {MAX_METHOD_CHARS} characters")
        self._methods[name] = _Method(handler, resumable)
        if self._newest is not None and self._newest.alive:
            self._register(self._newest, name)

    def remove_method(self, name: str) -> None:
        """Stop serving ``name``. Calls at work go on. A name that is not served is ignored."""
        if self._methods.pop(name, None) is not None:
            for socket in self._sockets:
                self._scopes.get(socket, {}).pop(name, None)
                socket.write("rpc-unregister", {"method": name})

    def on_superseded(self, callback: Callable[[str], Any]) -> Callable[[str], Any]:
        """Call ``callback(method)`` when a newer daemon has taken a method over. Usable as a decorator.

        We no longer claim it then; :meth:`add_method` claims it again.
        """
        self._on_superseded.append(callback)
        return callback

    @property
    def scopes(self) -> dict[str, Scope]:
        """What is registered on the connection in use: method → ``cluster``, or ``local`` while Redis is
        away."""
        return dict(self._scopes.get(self._socket, {})) if self._socket is not None else {}

    async def registered(self, timeout: float = 10.0, *, cluster: bool = False) -> None:
        """Return once every claimed method can be called; with ``cluster``, from every replica.

        Raises :class:`RegistrationError` for a method the server does not accept, :class:`Refused`, and
        :class:`Unreachable` after ``timeout`` seconds.
        """
        try:
            await self._changed.until(
                lambda: self._accepted() and self._complete(self._socket, cluster), timeout
            )
        except TimeoutError:
            missing = sorted(
                name for name, m in self._methods.items() if m.claimed and name not in self.scopes
            )
            raise Unreachable(f"not registered within {timeout:g} s: {missing or self.cause}") from None

    def _accepted(self) -> bool:
        for name, method in self._methods.items():
            if method.error is not None:
                raise RegistrationError(name, method.error)
        return self._usable()

    def _complete(self, socket: Socket | None, cluster: bool = False) -> bool:
        scopes = self._scopes.get(socket, {}) if socket is not None else {}
        return all(
            name in scopes and not (cluster and scopes[name] == "local")
            for name, method in self._methods.items()
            if method.claimed and method.error is None
        )

    def _register(self, socket: Socket, name: str) -> None:
        method = self._methods[name]
        future = socket.ask("rpc-register", {"method": name, "resumable": method.resumable})
        future.add_done_callback(lambda done: self._registration_answered(socket, method, name, done))

    def _registration_answered(
        self, socket: Socket, method: _Method, name: str, done: asyncio.Future[list[Any]]
    ) -> None:
        self._reclaiming.discard((socket, name))
        if done.cancelled() or done.exception() is not None:
            return
        answer = done.result()[0] if done.result() else None
        if isinstance(answer, dict) and answer.get("ok") is False:
            method.error = str(answer.get("error") or "refused")
            log.error("method %r is not accepted: %s", name, method.error)
            self._changed.fire()

    # -- hooks of the connection -----------------------------------------------------------------------------

    async def _entered(self) -> None:
        await self.connected()
        await self.registered()

    def _opened(self, socket: Socket) -> None:
        again = socket in self._scopes  # the connection that was to replace it did not live
        self._scopes[socket] = {}
        for name, method in self._methods.items():
            method.error = None
            if method.claimed:
                if again:
                    self._reclaiming.add((socket, name))
                self._register(socket, name)

    async def _prepare(self, socket: Socket) -> None:
        await self._changed.until(lambda: not socket.alive or self._complete(socket), 60.0)

    def _lost(self, socket: Socket) -> None:
        self._scopes.pop(socket, None)

    async def _finish(self, grace: float) -> None:
        for socket in self._sockets:
            for name in self._scopes.get(socket, {}):
                socket.write("rpc-unregister", {"method": name})
        tasks = {run.task for run in self._runs.values() if run.task is not None} - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=grace)

    def _received(self, socket: Socket, event: str, payload: Any, number: int | None) -> bool:
        if event == "rpc-request":
            self._requested(socket, payload, number)
            return True
        if event == "rpc-cancel":
            self._cancel(payload)
        elif event == "rpc-registered":
            self._registered_event(socket, payload)
        elif event == "rpc-superseded":
            self._superseded(socket, payload)
        return False

    def _registered_event(self, socket: Socket, payload: Any) -> None:
        name = payload.get("method") if isinstance(payload, dict) else None
        if isinstance(name, str) and name in self._methods and socket in self._scopes:
            self._scopes[socket][name] = "local" if payload.get("scope") == "local" else "cluster"
            self._changed.fire()

    def _superseded(self, socket: Socket, payload: Any) -> None:
        if socket is not self._newest:
            return  # by ourselves, on the connection that replaces this one
        name = payload.get("method") if isinstance(payload, dict) else None
        if not isinstance(name, str) or name not in self._methods or not self._methods[name].claimed:
            return
        if (socket, name) in self._reclaiming:
            return  # by ourselves, on the connection that did not live: said before this one took it back
        self._methods[name].claimed = False
        for scopes in self._scopes.values():
            scopes.pop(name, None)
        log.warning("a newer daemon serves %r now", name)
        for callback in self._on_superseded:
            self._listeners.call(callback, name)
        self._changed.fire()

    # -- requests --------------------------------------------------------------------------------------------

    def _requested(self, socket: Socket, payload: Any, number: int | None) -> None:
        fields = payload if isinstance(payload, dict) else {}
        name, request_id = fields.get("method"), fields.get("requestId")
        method = self._methods.get(name) if isinstance(name, str) else None
        reply = (socket, number) if number is not None else None
        if method is None or not isinstance(request_id, str):
            if reply is not None:
                _answer(reply, {"error": "LookupError: no such method here"})
            return
        kept = self._results.get(request_id)
        if kept is not None:
            if reply is not None:
                _answer(reply, kept[0])
            return
        run = self._runs.get(request_id)
        if run is None:
            run = self._runs[request_id] = Run(request_id, method.resumable)
            run.task = self._tasks.spawn(self._execute(run, method.handler, fields.get("params")))
            run.task.add_done_callback(lambda _: self._not_begun(run))
        if reply is not None:
            run.replies.append(reply)

    async def _execute(self, run: Run, handler: Callable[[Any], Any], params: Any) -> None:
        try:
            async with self._slots:
                result = await _result(handler, params)
        except asyncio.CancelledError as error:
            if run.cancelled or self.state == "closed":
                _forget(run)
                return
            result = _failure(error)  # the handler's own doing
        except Exception as error:
            log.exception("error in the handler of request %s", run.request_id)
            result = _failure(error)
        finally:
            del self._runs[run.request_id]
        if run.resumable:
            self._results.keep(run.request_id, result)
        for reply in run.replies:
            _answer(reply, result)

    def _not_begun(self, run: Run) -> None:
        """Cancelled before its first step, which no ``finally`` of the run itself sees."""
        if self._runs.get(run.request_id) is run:
            del self._runs[run.request_id]
            _forget(run)

    def _cancel(self, payload: Any) -> None:
        request_id = payload.get("requestId") if isinstance(payload, dict) else None
        run = self._runs.get(request_id) if isinstance(request_id, str) else None
        if run is not None and run.task is not None:
            run.cancelled = True
            run.task.cancel()


async def _result(handler: Callable[[Any], Any], params: Any) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler(params)
    result = await asyncio.to_thread(handler, params)
    return await result if isinstance(result, Awaitable) else result


def _forget(run: Run) -> None:
    """Nobody waits for its acks."""
    for socket, number in run.replies:
        socket.forget(number)


def _failure(error: BaseException) -> dict[str, str]:
    return {"error": f"{type(error).__name__}: {error}"}


def _answer(reply: tuple[Socket, int], result: Any) -> None:
    """The ack; a connection that is gone is no error, the server knows the call's end by then."""
    socket, number = reply
    try:
        socket.answer(number, result)
    except (TypeError, ValueError, RecursionError) as error:
        socket.answer(number, _failure(error))
