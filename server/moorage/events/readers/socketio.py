"""Reading over a Socket.IO connection: the same frames as event ``session-event``, each with its ``sessionId``."""

from __future__ import annotations

from typing import Protocol

from moorage.cluster.packets import Encoded
from moorage.events.frames import Frame
from moorage.events.readers.base import Limits, Reader


class Carrier(Protocol):
    """One Socket.IO socket, which carries other things too."""

    def push(self, packet: Encoded) -> None: ...
    def unsent(self) -> int: ...


class SocketIoReader(Reader):
    """A subscription. Its end is a frame ``closed`` with the code; the socket itself stays."""

    kind = "socketio"
    connects = False

    def __init__(self, session_id: str, limits: Limits, carrier: Carrier) -> None:
        super().__init__(session_id, limits)
        self._carrier = carrier

    def write(self, frame: Frame) -> int:
        packet = frame.socketio(self.session_id)
        self._carrier.push(packet)
        if self._carrier.unsent() > self.limits.max_buffer:
            self.slow()
        return len(packet.wire)

    def unsent(self) -> int:
        return self._carrier.unsent()

    def close(self, code: int) -> None:
        self._carrier.push(Frame.control({"type": "closed", "code": code}).socketio(self.session_id))
