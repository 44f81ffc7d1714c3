"""One session over HTTP: opening its stream, its turn, starting a task, answering a question."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any
from urllib.parse import quote

import aiohttp

from moorage.client.errors import ClientError, Refused, Unreachable
from moorage.client.event_frames import Checkpoint, Turn, turn_of
from moorage.client.event_retry import REFUSALS
from moorage.client.signin import TokenSource

CLOSE_S = 1.0
"""[s] Bound of a goodbye: nobody waits longer for the server's."""

MAX_FRAME_BYTES = 4 << 20
"""Largest frame accepted. An event has at most EVENT_MAX_BYTES 65536 of data unless the server is configured
otherwise."""


class SessionApi:
    """Requests with the account's token. One attempt each; none is repeated."""

    def __init__(
        self, url: str, session_id: str, token: TokenSource, timeout: float, tls: ssl.SSLContext | None
    ) -> None:
        self._base = f"{url.rstrip('/')}/v1/sessions/{quote(session_id, safe='')}"
        self._token = token
        self._timeout = timeout
        self._ssl: ssl.SSLContext | bool = tls if tls is not None else True
        self._http: aiohttp.ClientSession | None = None

    async def connect(self, checkpoint: Checkpoint | None, silence: float) -> aiohttp.ClientWebSocketResponse:
        """Open the stream, to be resumed after ``checkpoint``. ``silence`` [s] bounds each receive.

        Raises :class:`Refused` (401, 404), :class:`Unreachable` (whatever may pass)."""
        query: dict[str, str] = {}
        if checkpoint is not None:
            query["last_event_id"] = checkpoint.id
            if checkpoint.seq is not None:
                query["last_seq"] = str(checkpoint.seq)
            if checkpoint.epoch is not None:
                query["epoch"] = checkpoint.epoch
        try:
            async with asyncio.timeout(self._timeout):
                return await self._session().ws_connect(
                    f"{self._base}/stream",
                    params=query,
                    headers=await self._headers(),
                    timeout=aiohttp.ClientWSTimeout(ws_receive=silence, ws_close=CLOSE_S),
                    max_msg_size=MAX_FRAME_BYTES,
                    ssl=self._ssl,
                )
        except aiohttp.WSServerHandshakeError as error:
            text = f"HTTP {error.status} {error.message}".strip()
            raise self._refusal(error.status, REFUSALS.get(4000 + error.status, text)) from None
        except TimeoutError:
            raise Unreachable(f"no answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error

    async def turn(self) -> Turn | None:
        """The latest turn; None before any task."""
        status, answer = await self._request("GET", "/turn")
        if status == 404 and answer.get("error") == "Turn not found":
            return None
        self._check(status, answer)
        turn = turn_of(answer)
        if turn is None:
            raise Unreachable("the turn makes no sense")
        return turn

    async def start_task(self, input: Any, handler: str | None) -> str:
        """The id of the new task."""
        body = {"input": input} | ({"handler": handler} if handler is not None else {})
        status, answer = await self._request("POST", "/tasks", body)
        self._check(status, answer)
        return str(answer.get("taskId"))

    async def reply(self, question_id: str, answer: Any) -> None:
        """Answer a question."""
        body = {"questionId": question_id, "answer": answer}
        self._check(*await self._request("POST", "/replies", body))

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            # A kept connection that breaks under a request leaves open whether a task was started.
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        return self._http

    async def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {await self._token.get()}"}

    async def _request(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        try:
            async with self._session().request(
                method,
                self._base + path,
                json=body,
                headers=await self._headers(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                ssl=self._ssl,
            ) as response:
                answer = await response.json(content_type=None)
                return response.status, answer if isinstance(answer, dict) else {}
        except TimeoutError:
            raise Unreachable(f"no answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error

    def _check(self, status: int, answer: dict[str, Any]) -> None:
        if not 200 <= status < 300:
            text, more = str(answer.get("error") or f"HTTP {status}"), answer.get("message")
            raise self._refusal(status, f"{text}: {more}" if isinstance(more, str) else text)

    def _refusal(self, status: int, text: str) -> ClientError:
        """Refusals that cannot pass are told from those that may. A token that can be had anew may."""
        if status == 401 and self._token.renew():
            return Unreachable("Invalid token")
        if 400 <= status < 500 and status not in (408, 425, 429):
            return Refused(text)
        return Unreachable(text)
