"""Composes a replica: builds every part, registers the upward callbacks, starts and stops them in order."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from moorage.accounts.tokens import Tokens
from moorage.cluster.local import LocalManager
from moorage.cluster.manager import RedisStreamsManager
from moorage.cluster.membership import Membership
from moorage.cluster.memory import MemoryManager
from moorage.drain import Drain
from moorage.events.readers.base import SERVICE_RESTART
from moorage.http import emit
from moorage.http.api import build_api
from moorage.http.context import HttpContext
from moorage.http.peers import Peers
from moorage.http.readiness import Observations, Readiness
from moorage.loop_monitor import LoopMonitor
from moorage.metrics import Metrics
from moorage.rpc.calls import Call, Calls
from moorage.rpc.foreign import Foreign
from moorage.rpc.here import Here
from moorage.rpc.registry import Registry
from moorage.rpc.remote import Remote
from moorage.rpc.serving import Serving
from moorage.rpc.wiring import connect
from moorage.settings import Settings
from moorage.sockets import activity, presence
from moorage.sockets.background import Background
from moorage.sockets.calling import Calling
from moorage.sockets.clients import Client, Clients
from moorage.sockets.events import Events
from moorage.sockets.handshake import Door
from moorage.sockets.reading import Reading
from moorage.sockets.replies import Replies
from moorage.sockets.returning import Returning
from moorage.sockets.server import SocketServer
from moorage.sockets.updates import Updates
from moorage.storage.backplane import Backplane
from moorage.storage.state import State
from moorage.storage.state_memory import MemoryState
from moorage.storage.state_redis import RedisState
from moorage.tasks.service import TaskService

log = structlog.get_logger("moorage")

START_BOUND_S = 10.0
"""For programs that need a replica to be up before they go on."""


class Replica:
    """One replica. ``asgi`` is its application; :meth:`start` before it serves, :meth:`drain`, then :meth:`stop`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.loop_monitor = LoopMonitor()
        self.clients = Clients()
        self.background = Background()
        self.ready_once = False
        self._linked = asyncio.Event()
        self.backplane: Backplane | None = None
        self.membership: Membership | None = None
        self.remote: Remote | None = None
        self.foreign: Foreign | None = None
        self.cluster: RedisStreamsManager | None = None
        if settings.redis_url:
            self.backplane = Backplane(
                settings.redis_url,
                name=f"moorage:{settings.replica_id}",
                ca_file=settings.redis_ca_file,
                timeout_ms=settings.redis_timeout_ms,
                stall_ms=settings.redis_stall_ms,
            )
            self.cluster = RedisStreamsManager(
                self.backplane,
                stream_name=settings.stream_name,
                stream_maxlen=settings.stream_maxlen,
                stream_read_count=settings.stream_read_count,
                channel_prefix=settings.channel_prefix,
                recovery_secret=settings.secret_key,
                recovery_window_ms=settings.recovery_window_ms,
            )
            self.membership = Membership(settings, self.backplane)
        self.manager = self.cluster or self._build_manager()
        self.state: State = self._build_state()
        self.tokens = Tokens(settings)
        self.server = SocketServer(settings, self.manager)
        self._compose_rpc()
        self._compose_sockets()
        self._compose_events()
        self.drainer = Drain(
            settings.drain_ms / 1000,
            lambda: [*(client.sid for client in self.clients.all()), *self.event_log.connections],
            self.is_busy,
            lambda sid: (client := self.clients.get(sid)) is not None and client.calls,
            lambda sid, payload: self.server.send_event(sid, "server-draining", payload),
            self._lead_away,
        )
        self.door.on_connected.append(lambda client: self.drainer.connected(client.sid))
        self.event_log.on_connected = self.drainer.connected
        peers = Peers(settings.peers_host, settings.port) if settings.peers_host else None
        context = HttpContext(
            settings=settings,
            tokens=self.tokens,
            state=self.state,
            updates=self.updates,
            presence=self.presence.has_active_ui_client,
            readiness=Readiness(self.observe, peers.reach_redis if peers else None),
            events=self.event_log,
            tasks=self.tasks.queue,
        )
        self.api = build_api(context)
        self.server.direct_posts[emit.PATH.encode()] = emit.Direct(
            self.tokens, self.updates, settings.max_payload_bytes
        )
        self.asgi = self.server.asgi(self.api)
        self._compose_metrics()

    def _build_manager(self) -> LocalManager:
        secret, window_ms = self.settings.secret_key, self.settings.recovery_window_ms
        if secret and window_ms:
            return MemoryManager(recovery_secret=secret, recovery_window_ms=window_ms)
        return LocalManager()

    def _build_state(self) -> State:
        url = self.settings.effective_state_url
        if url is None:
            return MemoryState()
        return RedisState(
            url,
            name=f"moorage:{self.settings.replica_id}",
            ca_file=self.settings.redis_ca_file,
            timeout_ms=self.settings.redis_timeout_ms,
        )

    def _compose_rpc(self) -> None:
        self.registry = Registry(self.settings.replica_id)
        self.serving = Serving(self.server.send_event, self.server.forget_ack)
        if self.membership is not None and self.cluster is not None:
            members = self.membership.members
            self.foreign = Foreign(
                self.cluster.requests, self.registry, lambda: 1 + len(members), self.cluster.emit_now
            )
            self.remote = Remote(self.membership, self.serving, self.settings.recovery_window_ms / 1000)
            connect(self.membership, self.registry, self.remote)
            self.membership.answer = self._answer
        self.calls = Calls(self.settings, self.registry, Here(self.serving), self.remote, self.foreign)
        self.calls.notify = lambda sid, event, payload: self.server.send_event(sid, event, payload)
        self.calling = Calling(
            self.settings,
            self.clients,
            self.manager,
            self.registry,
            self.calls,
            self.background,
            self.server.send_event,
            self.membership,
        )
        self.manager.on_join.append(self.calling.joined)
        self.manager.on_leave.append(self.calling.left)

    def _compose_sockets(self) -> None:
        ask = self.membership.ask if self.membership is not None else presence.ask_nobody
        backplane = self.backplane
        self.updates = Updates(self.manager, lambda: backplane is None or backplane.available)
        self.presence = presence.Presence(
            self.clients, self._ask_presence(ask), self.settings.presence_timeout_ms
        )
        self.activity = activity.Activity(
            self.updates, self.state, self.clients, self.background, listens=self.registry.listens, ask=ask
        )
        self.events = Events(self.clients, self.state, self.updates, self.activity, self.background)
        self.door = Door(self.clients, self.tokens.verify_or_fetch, self.manager.join)
        self.door.on_connected.append(self._connected)
        self.door.on_disconnected.append(self._disconnected)
        self.returning = Returning(
            self.manager.recovery,
            self.clients,
            self.calling,
            self.tokens.verify_or_fetch,
            self.manager.join,
            self.calls.caller_gone,
            self.settings.recovery_window_ms / 1000,
        )
        self.server.on("connect", self.door.connect)
        self.server.on("disconnect", self.door.disconnect)
        self.server.connect_payload = lambda sid: {"replica": self.settings.replica_id}
        self.server.direct.update(self.events.handlers)
        self.server.direct["app-state"] = self.returning.watch(self.events.handlers["app-state"])
        self.server.direct.update(self.calling.handlers)
        self.server.on_heard.append(self.serving.heard)
        self.server.on_closed.append(self._closed)

    def _malformed(self) -> dict[str, int]:
        assert self.cluster is not None
        return {
            "stream": self.cluster.reader.poisoned,
            "request": self.cluster.requests.malformed,
            "member": self.membership.malformed if self.membership else 0,
            "event": self.event_log.live.malformed,
        }

    def _compose_events(self) -> None:
        self.reading = Reading(
            self.settings,
            self.backplane,
            self.state,
            self.tokens.verify_or_fetch,
            self.clients,
            self.background,
            self.server,
        )
        self.event_log = self.reading.log
        self.tasks = TaskService(self.settings, self.event_log)
        if self.tasks.runner is not None:
            self.tasks.runner.watch(self.metrics)
        replies = Replies(self.clients, self.tasks.queue, self.background)
        self.reading.streams.reply = replies.from_stream
        self.server.direct.update(replies.handlers)
        self.metrics.follow(self.event_log)

    def _compose_metrics(self) -> None:
        metrics, calls = self.metrics, self.calls
        metrics.gauge(metrics.registrations, lambda: len(self.registry))
        metrics.gauge(metrics.in_flight, lambda: len(calls))
        metrics.gauge(metrics.members, lambda: 1 + len(self.membership.members if self.membership else ()))
        metrics.read_deliveries = lambda: self.manager.deliveries
        metrics.gauge(metrics.drain_state, lambda: int(self.drainer.state))
        if self.cluster is not None:
            reader = self.cluster.reader
            metrics.gauge(metrics.stream_lag, lambda: reader.lag_ms)
            metrics.read_malformed = self._malformed
        calls.on_ended = self._call_ended
        calls.on_waited = metrics.rpc_grace_wait.observe
        calls.on_evidence = lambda kind: metrics.rpc_evidence.labels(kind).inc()
        calls.on_late = self.serving.on_late = metrics.rpc_late_results.inc
        if self.manager.recovery is not None:
            self.manager.recovery.on_return = lambda recovered: metrics.recoveries.labels(
                "recovered" if recovered else "new"
            ).inc()
        if self.remote is not None:
            self.remote.on_evidence = calls.on_evidence
            self.remote.on_late = metrics.rpc_late_results.inc
        if self.foreign is not None:
            self.foreign.on_timeout = metrics.rpc_lookup_timeouts.labels("lookup").inc

    def _ask_presence(self, ask: presence.Ask) -> presence.Ask:
        async def counted(kind: str, payload: Any, timeout_s: float) -> tuple[list[Any], bool]:
            answers, complete = await ask(kind, payload, timeout_s)
            if not complete:
                self.metrics.rpc_lookup_timeouts.labels("presence").inc()
            return answers, complete

        return counted

    # -- callbacks -------------------------------------------------------------------------------------
    def _answer(self, kind: str, payload: Any) -> Any:
        if kind == presence.ASK_KIND:
            return self.presence.answer(payload)
        if kind == activity.ASK_KIND:
            return self.activity.answer(payload)
        return None

    def _connected(self, client: Client) -> None:
        self.metrics.connections.labels(client.scope).inc()
        if client.scope == "user-scoped":
            self.registry.listen(client.account, 1)
        self.activity.connected(client)

    def _disconnected(self, client: Client) -> None:
        self.metrics.connections.labels(client.scope).dec()
        if client.scope == "user-scoped":
            self.registry.listen(client.account, -1)
        self.activity.disconnected(client)

    def _closed(self, sid: str, reason: str) -> None:
        """The transport is gone: calls that ran on it end now, before any handler or room is touched."""
        self.serving.closed(sid)
        if self.calls.is_busy(sid):
            self.returning.caller_closed(sid, reason)

    def _call_ended(self, call: Call, result: str) -> None:
        self.metrics.call_ended(call.request.method, result, call.elapsed_s)

    def _lead_away(self, sid: str) -> None:
        if not self.reading.close(sid):
            self.server.close_socket(sid, "server shutting down")

    def is_busy(self, sid: str) -> bool:
        """Calls are under way on this socket, as caller or as target."""
        return self.serving.is_busy(sid) or self.calls.is_busy(sid)

    def observe(self) -> Observations:
        """What ``/ready`` looks at."""
        backplane = self.backplane
        redis = "unset" if backplane is None else "ok" if backplane.available else "down"
        return Observations(
            ready_once=self.ready_once,
            draining=self.drainer.draining,
            loop_stalled=self.loop_monitor.stalled,
            redis=redis,  # type: ignore[arg-type]
            reader_deaf=self.cluster is not None and self.cluster.reader.deaf,
        )

    # -- life ------------------------------------------------------------------------------------------
    async def begin(self) -> None:
        """Start everything and wait for nothing: probes can be answered while Redis is away."""
        self.loop_monitor.start()
        await self.tokens.start()
        await self.state.start()
        if self.backplane is not None and self.cluster is not None and self.membership is not None:
            self.backplane.on_up.append(self._linked.set)
            self.membership.begin()
            await self.event_log.start()
            await self.backplane.start(0)
            await self.cluster.start(0)
        await self.tasks.start()

    async def come_up(self) -> None:
        """Returns when all is up for the first time, however long Redis is away; from then on ``/ready`` may say so."""
        if self.cluster is not None and self.membership is not None:
            await self._linked.wait()
            await self.cluster.reader.placed.wait()
            await self.membership.synced()
        self.ready_once = True
        log.info("ready", replica=self.settings.replica_id)

    async def start(self) -> None:
        """:meth:`begin`, then :meth:`come_up`, the latter at most :data:`START_BOUND_S`."""
        await self.begin()
        async with asyncio.timeout(START_BOUND_S):
            await self.come_up()

    async def drain(self) -> None:
        """Lead all sockets away, then end what is left with a typed end."""
        await self.lead_away()
        await self.end_what_is_left()

    async def lead_away(self) -> None:
        """The part of a drain that has a window. May be cancelled."""
        await asyncio.gather(self.drainer.run(), self.tasks.drain())

    async def end_what_is_left(self) -> None:
        """The end of a drain."""
        self.event_log.close_readers(SERVICE_RESTART)
        self.calls.end_all("cancelled")
        for client in list(self.clients.all()):
            self.server.close_socket(client.sid, "server shutting down")
        await self.background.close()

    async def stop(self) -> None:
        """Goodbye to the members, then close all links. Bounded by the replies of Redis."""
        if self.membership is not None:
            await self.membership.stop()
        if self.foreign is not None:
            await self.foreign.stop()
        await self.tasks.stop()
        await self.event_log.stop()
        if self.cluster is not None:
            await self.cluster.stop()
        if self.backplane is not None:
            await self.backplane.stop()
        await self.state.stop()
        await self.tokens.stop()
        self.loop_monitor.stop()
