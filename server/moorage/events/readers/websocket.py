"""Reading by WebSocket: a frame is one text message, written to the transport in the call that pushes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from moorage.events.frames import Frame
from moorage.events.readers.base import SERVICE_RESTART, Limits, Reader

PONG = b'{"type":"pong"}'

UNSUPPORTED, PROTOCOL_ERROR = 1003, 1002
"""Close codes for binary messages, and for what is no WebSocket message of ours (RFC 6455)."""


class Wire(Protocol):
    """The connection: writes go to the network or wait in a buffer; it says itself when that is full."""

    def write(self, data: bytes) -> None: ...
    def unsent(self) -> int: ...
    def close(self, code: int) -> None: ...


class WebSocketReader(Reader):
    """``replied(question_id, answer)``: the client sent a reply. The methods below ``write`` are the connection's to
    call."""

    kind = "websocket"
    answers = True

    def __init__(
        self, session_id: str, limits: Limits, wire: Wire, replied: Callable[[str, Any], None]
    ) -> None:
        super().__init__(session_id, limits)
        self._wire = wire
        self._send = wire.write
        self._replied = replied

    def write(self, frame: Frame) -> int:
        data = frame.websocket
        self._send(data)
        return len(data)

    def unsent(self) -> int:
        return self._wire.unsent()

    def close(self, code: int) -> None:
        self._wire.close(code)

    # -- the connection's ------------------------------------------------------------------------------------
    def take_text(self, raw: bytes) -> None:
        """A message. What is not known is ignored: a newer client may say more than we understand."""
        self.heard()
        if raw == PONG:
            return
        try:
            message = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return
        if isinstance(message, dict) and message.get("type") == "reply":
            question_id = message.get("questionId")
            if isinstance(question_id, str) and "answer" in message:
                self._replied(question_id, message["answer"])

    def take_binary(self, data: bytes) -> None:
        """There are no binary messages."""
        self.end(UNSUPPORTED)

    def bad_frame(self, why: str) -> None:
        """What came is no WebSocket message, or too large."""
        self.end(PROTOCOL_ERROR)

    def transport_full(self) -> None:
        """The buffer is over its bound; may come inside of a write."""
        self.slow()

    def transport_gone(self, deliberate: bool = False) -> None:
        """The connection is no more."""
        self.end(None)

    def shutdown(self) -> None:
        """The process ends."""
        self.end(SERVICE_RESTART)
