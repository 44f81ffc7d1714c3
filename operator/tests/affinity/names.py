"""A name server of one name: what the cluster's DNS says of a headless Service."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

A = 1
HEADER = struct.Struct("!6H")
ANSWER, AUTHORITATIVE = 0x8000, 0x0400


class Names:
    """Every question for an IPv4 address is answered with ``addresses``, in that order; any other with nothing."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._stopped = False

    @contextmanager
    def running(self) -> Iterator[Names]:
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stopped = True
            self._socket.sendto(b"", ("127.0.0.1", self.port))
            thread.join(5)
            self._socket.close()

    def _serve(self) -> None:
        while not self._stopped:
            query, peer = self._socket.recvfrom(4096)
            if len(query) > HEADER.size:
                self._socket.sendto(self._answer(query), peer)

    def _answer(self, query: bytes) -> bytes:
        identity = HEADER.unpack_from(query)[0]
        end = query.index(b"\0", HEADER.size) + 5
        (kind,) = struct.unpack_from("!H", query, end - 4)
        found = [socket.inet_aton(address) for address in self.addresses] if kind == A else []
        # 0xC00C: the name of the question again. Class 1, one second of life, four bytes.
        records = [struct.pack("!HHHIH", 0xC00C, A, 1, 1, 4) + address for address in found]
        header = HEADER.pack(identity, ANSWER | AUTHORITATIVE, 1, len(records), 0, 0)
        return header + query[HEADER.size : end] + b"".join(records)
