"""The harness's way to the API server: plain dicts in and out, every request bounded; watches; `exec` as a stream."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from moorage_chaos.drivers.base import DriverError

Body = dict[str, Any]
REQUEST_BOUND_S = 15.0
"""Of one request, connection and answer together."""
WATCH_S = 240
"""Length of one watch; the next begins where it ended."""
FIELD_MANAGER = "moorage-chaos"
RTS = "/apis/moorage.dev/v1alpha1"
STDIN, STDOUT, STDERR, ERROR = range(4)
"""Channels of the WebSocket protocol ``v4.channel.k8s.io``, the first byte of each message."""


class ApiError(DriverError):
    """The API server said no, or nothing. ``status`` 0: no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Where:
    """A cluster. Both empty: the service account of this pod if this is one, else the kubeconfig's own context."""

    context: str = ""
    kubeconfig: str = ""

    def as_json(self) -> dict[str, str]:
        return {"context": self.context, "kubeconfig": self.kubeconfig}

    @property
    def file(self) -> str:
        return self.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"

    @property
    def in_cluster(self) -> bool:
        """This process is a pod and was told of no other cluster."""
        return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and not self.context and not self.kubeconfig


class Api:
    """Build with :meth:`connect`; ``close`` when done."""

    def __init__(self, api_client: Any) -> None:
        self._client = api_client

    @classmethod
    async def connect(cls, where: Where) -> Api:
        """Raises DriverError if there is no way to a cluster."""
        settings = client.Configuration()
        try:
            if where.in_cluster:
                config.load_incluster_config(client_configuration=settings)
            else:
                await config.load_kube_config(
                    config_file=where.file, context=where.context or None, client_configuration=settings
                )
        except (config.ConfigException, OSError) as error:
            raise DriverError(f"no way to a Kubernetes API server: {error}") from error
        settings.retries = None  # the client's own retries would hide what the API server says
        return cls(client.ApiClient(configuration=settings))

    async def close(self) -> None:
        await self._client.close()
        # TLS connections end in the background; aiohttp asks for a moment ("Graceful Shutdown").
        await asyncio.sleep(0.1)

    # -- requests --------------------------------------------------------------------------------------
    async def _prepare(self, method: str, path: str, query: Any, kind: str) -> tuple[str, dict[str, str]]:
        url = f"{path}?{urlencode(query, doseq=True)}" if query else path
        headers = {"Accept": "application/json, */*", "Content-Type": kind}
        _, full, prepared, _, _ = await self._client.param_serialize(
            method, url, header_params=headers, auth_settings=["BearerToken"]
        )
        return str(full), dict(prepared)

    @property
    def _session(self) -> aiohttp.ClientSession:
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        session: aiohttp.ClientSession = rest.pool_manager
        return session

    async def text(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        kind: str = "application/json",
        query: dict[str, str] | None = None,
        bound_s: float = REQUEST_BOUND_S,
    ) -> str:
        """One request; its body. Raises ApiError for everything but 2xx."""
        data = json.dumps(body).encode() if body is not None else None
        try:
            async with asyncio.timeout(bound_s):
                url, headers = await self._prepare(method, path, query, kind)
                async with self._session.request(method, url, data=data, headers=headers) as answer:
                    text = await answer.text(errors="replace")
                    status = answer.status
        except (TimeoutError, OSError, aiohttp.ClientError, client.ApiException) as error:
            raise ApiError(0, f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error
        if status >= 300:
            try:
                message = str(json.loads(text)["message"])
            except (ValueError, KeyError, TypeError):
                message = text[:300]
            raise ApiError(status, f"{method} {path}: {status} {message}")
        return text

    async def request(self, method: str, path: str, **more: Any) -> Body:
        """One request; its JSON. Raises ApiError."""
        text = await self.text(method, path, **more)
        try:
            answer: Body = json.loads(text) if text else {}
        except ValueError as error:
            raise ApiError(0, f"{method} {path}: no JSON: {text[:200]!r}") from error
        return answer

    async def get(self, path: str) -> Body:
        return await self.request("GET", path)

    async def find(self, path: str) -> Body | None:
        """The object, or None if the API server says that there is none."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def items(self, path: str, selector: str = "", fields: str = "") -> list[Body]:
        query = {"labelSelector": selector, "fieldSelector": fields}
        answer = await self.request("GET", path, query={k: v for k, v in query.items() if v})
        found: list[Body] = answer.get("items") or []
        return found

    async def patch(self, path: str, patch: Any, how: str = "merge") -> Body:
        """``how``: merge, strategic-merge or json."""
        return await self.request("PATCH", path, body=patch, kind=f"application/{how}-patch+json")

    async def apply(self, path: str, body: Body) -> Body:
        """Server-side apply with force."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self.request("PATCH", path, body=body, kind="application/apply-patch+yaml", query=query)

    async def delete(self, path: str, *, grace_s: int | None = None, uid: str = "") -> None:
        """In the background; one that is gone already is no error."""
        options: Body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", path, body=options)
        except ApiError as error:
            if error.status != 404 and not (uid and error.status == 409):
                raise

    # -- streams ---------------------------------------------------------------------------------------
    async def watch(self, path: str, selector: str = "") -> AsyncIterator[tuple[str, Body]]:
        """``("LISTED", {"items": […]})`` first, then ``("ADDED" | "MODIFIED" | "DELETED", object)``; for ever. After
        anything was lost a list comes again. Never raises for the API server: it asks again, with pauses."""
        chosen = {"labelSelector": selector} if selector else {}
        pause = 0.1
        while True:
            try:
                listed = await self.request("GET", path, query=chosen)
                yield "LISTED", listed
                version, pause = listed["metadata"]["resourceVersion"], 0.1
                while True:
                    async for kind, found in self._watched(path, {**chosen, "resourceVersion": version}):
                        if kind == "ERROR":
                            raise ApiError(int(found.get("code", 0)), str(found.get("message")))
                        version = found["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            yield kind, found
            except (DriverError, TimeoutError, OSError, aiohttp.ClientError, ValueError):
                await asyncio.sleep(pause)
                pause = min(2 * pause, 2.0)

    async def _watched(self, path: str, query: dict[str, str]) -> AsyncIterator[tuple[str, Body]]:
        asked = {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_S)}
        async for line in self.lines(path, asked, silence_s=WATCH_S + 10.0):
            if line:
                row = json.loads(line)
                yield row["type"], row["object"]

    async def lines(
        self, path: str, query: dict[str, str], *, silence_s: float | None = None
    ) -> AsyncIterator[bytes]:
        """Whole lines of a body as they come. Raises ApiError and what aiohttp raises."""
        url, headers = await self._prepare("GET", path, query, "application/json")
        bound = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=silence_s)
        async with self._session.get(url, headers=headers, timeout=bound) as answer:
            if answer.status >= 300:
                raise ApiError(answer.status, await answer.text())
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line

    async def connect_socket(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket to a subresource such as ``exec`` or ``portforward``. Raises ApiError."""
        try:
            async with asyncio.timeout(REQUEST_BOUND_S):
                url, headers = await self._prepare("GET", path, query, "application/json")
                return await self._session.ws_connect(
                    url.replace("http", "ws", 1),
                    headers=headers,
                    protocols=("v4.channel.k8s.io",),
                    max_msg_size=1 << 24,
                )
        except (TimeoutError, OSError, aiohttp.ClientError, client.ApiException) as error:
            status = error.status if isinstance(error, aiohttp.WSServerHandshakeError) else 0
            raise ApiError(status, f"{path}: {type(error).__name__} {error}") from error

    async def run(
        self, namespace: str, pod: str, container: str, argv: Sequence[str], bound_s: float
    ) -> bool:
        """Whether a command in a container ended with 0. Raises ApiError, and TimeoutError."""
        async with asyncio.timeout(bound_s):
            socket = await self.exec(namespace, pod, container, argv)
            try:
                async for message in socket:
                    if message.type == aiohttp.WSMsgType.BINARY and message.data[:1] == bytes([ERROR]):
                        return bool(json.loads(message.data[1:]).get("status") == "Success")
            finally:
                await socket.close()
        return False

    async def exec(
        self, namespace: str, pod: str, container: str, argv: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """Run a command in a container; its stdin, stdout and stderr are channels of the socket. Raises ApiError."""
        query = [("command", word) for word in argv]
        query += [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
        return await self.connect_socket(f"/api/v1/namespaces/{namespace}/pods/{pod}/exec", query)
