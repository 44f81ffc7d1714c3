"""Replicas that only say who they are: one port, addresses 127.0.0.2, 127.0.0.3 …, as pods have."""

from __future__ import annotations

import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from .balancer import free_port


class Server(socketserver.ThreadingTCPServer):
    """Not http.server's: that one asks the DNS for its own name."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class Replica:
    """``/ready`` follows ``ready``; ``/hold`` waits until ``release``; anything else is answered with the address."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self.port = address, port
        self.ready = True
        self.held = 0
        self.release = threading.Event()
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        replica = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                replica._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = Server((self.address, self.port), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Connections are refused from now on."""
        self.release.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5)
            self._server = None

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.path == "/hold":
            self.held += 1
            self.release.wait(90)
        ok = self.ready or request.path != "/ready"
        body = self.address.encode()
        request.send_response(200 if ok else 503)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def some(count: int) -> list[Replica]:
    """Running replicas."""
    port = free_port("127.0.0.2")
    replicas = [Replica(f"127.0.0.{number}", port) for number in range(2, 2 + count)]
    for replica in replicas:
        replica.start()
    return replicas
