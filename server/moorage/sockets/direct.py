"""POST requests that are answered where their bytes arrive: no task, no ASGI call, no copy of what is not needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol


class Direct(Protocol):
    """Answers ``POST`` of one path. Never raises, never waits."""

    def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> Any | None:
        """None: the application shall answer. Else what :meth:`answer` needs of the headers; the body may come."""

    def answer(self, accepted: Any, body: bytes) -> tuple[int, bytes] | None:
        """Status and JSON; None: the application shall answer after all."""


class DirectPosts(HttpToolsProtocol):
    """uvicorn's HTTP protocol; ``direct`` are paths, as they are requested, that are answered here when they can be."""

    direct: ClassVar[dict[bytes, Direct]]

    _answering: Direct | None = None
    _accepted: Any = None
    _body = b""

    def on_headers_complete(self) -> None:
        direct = self.direct.get(self.url)
        if direct is not None and self._is_plain():
            self._accepted = direct.accept(self.headers)
            if self._accepted is not None:
                self._answering, self._body = direct, b""
                return
        super().on_headers_complete()

    def _is_plain(self) -> bool:
        """A POST by HTTP/1.1, with nothing before it unanswered and nothing special asked for."""
        return (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and not (self.expect_100_continue or self.parser.should_upgrade())
            and (self.cycle is None or self.cycle.response_complete)
            and not (self.pipeline or self.flow.write_paused)
        )

    def on_body(self, body: bytes) -> None:
        if self._answering is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        direct, self._answering = self._answering, None
        if direct is None:
            super().on_message_complete()
            return
        body, self._body = self._body, b""
        answer = direct.answer(self._accepted, body)
        if answer is not None:
            self._respond(*answer)
            return
        super().on_headers_complete()
        super().on_body(body)
        super().on_message_complete()

    def _respond(self, status: int, json: bytes) -> None:
        lines = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            lines += (name, b": ", value, b"\r\n")
        stays = self.parser.should_keep_alive()
        if not stays:
            lines.append(b"connection: close\r\n")
        lines.append(b"content-length: %d\r\ncontent-type: application/json\r\n\r\n%b" % (len(json), json))
        self.transport.write(b"".join(lines))
        if not stays:
            self.transport.close()
        self.on_response_complete()
