"""One order for all readers of a session here: what is next goes through, what is early waits. No I/O.

Events come by two ways, replies to our own appends and the live channel, which do not wait for each other. Their
numbers are dense, so it is known of each whether one is missing before it.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.events.frames import START, EventId, Frame

HELD_MAX = 1000
HELD_MAX_BYTES = 4_194_304
"""What waits for an event before it. Beyond, logged ones are left to be read from the log, others are lost."""


class Order:
    """Where the readers of one session stand: ``epoch``, ``seq`` and ``id`` of the last event they were given.

    Nothing goes through before :meth:`place`. Every method returns what goes through now, in order.
    """

    def __init__(self) -> None:
        self.placed = False
        self.epoch = ""
        self.seq = 0
        self.id = START
        self._known = 0  # highest number heard of
        self._doubtful = False
        self._held: dict[int, tuple[str, Frame]] = {}
        self._idless: list[tuple[int, Frame]] = []  # with the highest held number at the time
        self._size = 0

    @property
    def behind(self) -> bool:
        """The log must be read after ``id``: something is missing, or this may be another log by now."""
        return self._known > self.seq or self._doubtful

    def place(self, epoch: str, seq: int, id: EventId) -> list[Frame]:
        """Stand there from now on."""
        self.placed = True
        self.epoch, self.seq, self.id = epoch, seq, id
        self._doubtful = False
        self._keep(lambda number, of: number > seq and of == epoch)
        self._known = max(self._held, default=seq)
        return self._release([])

    def live(self, epoch: str, frame: Frame) -> list[Frame]:
        """A logged event arrived."""
        seq = frame.seq or 0
        if self.placed and epoch == self.epoch:
            if seq == self.seq + 1:
                return self._through(frame)
            if seq <= self.seq:
                # A number given before that stands for something newer: the log has lost its tail and gone on.
                self._doubtful = self._doubtful or (frame.id is not None and frame.id > self.id)
                return []
            self._known = max(self._known, seq)
        elif self.placed:
            self._doubtful = True
        self._hold(seq, epoch, frame)
        return []

    def heard(self, epoch: str, seq: int) -> None:
        """The log of that epoch has come to ``seq``."""
        if epoch != self.epoch:
            self._doubtful = self.placed
        else:
            self._known = max(self._known, seq)

    def read(self, frame: Frame) -> list[Frame]:
        """A logged event was read from the log, where it follows the one at ``id``."""
        return self._through(frame) if (frame.seq or 0) > self.seq else []

    def idless(self, frame: Frame) -> list[Frame]:
        """An event without id arrived: it keeps its place behind those that came before it."""
        if self.placed and not self._held:
            return [frame]
        if len(self._idless) < HELD_MAX and self._size + len(frame.json) <= HELD_MAX_BYTES:
            self._idless.append((max(self._held, default=0), frame))
            self._size += len(frame.json)
        return []

    def settle(self, seq: int) -> list[Frame]:
        """The log was read to its end, ``seq``, and is the one we know: nothing that waits beyond is in it."""
        self._doubtful = False
        self._keep(lambda number, of: number <= seq and of == self.epoch)
        self._known = min(self._known, seq)
        return self._release([])

    def _through(self, frame: Frame) -> list[Frame]:
        self.seq, self.id = frame.seq or 0, frame.id or self.id
        self._known = max(self._known, self.seq)
        if self._held:
            self._keep(lambda number, _: number > self.seq)
        return self._release([frame]) if self._held or self._idless else [frame]

    def _hold(self, seq: int, epoch: str, frame: Frame) -> None:
        known = self._held.get(seq)
        if known is not None and known[0] == epoch:
            return
        if len(self._held) < HELD_MAX and self._size + len(frame.json) <= HELD_MAX_BYTES:
            self._drop(seq)
            self._held[seq] = (epoch, frame)
            self._size += len(frame.json)

    def _keep(self, wanted: Callable[[int, str], bool]) -> None:
        for number, (epoch, _) in list(self._held.items()):
            if not wanted(number, epoch):
                self._drop(number)

    def _drop(self, number: int) -> None:
        held = self._held.pop(number, None)
        if held is not None:
            self._size -= len(held[1].json)

    def _release(self, through: list[Frame]) -> list[Frame]:
        while True:
            self._release_idless(through)
            held = self._held.get(self.seq + 1)
            if held is None or held[0] != self.epoch:
                return through
            self._drop(self.seq + 1)
            self.seq, self.id = self.seq + 1, held[1].id or self.id
            through.append(held[1])

    def _release_idless(self, through: list[Frame]) -> None:
        while self._idless and (not self._held or self._idless[0][0] <= self.seq):
            frame = self._idless.pop(0)[1]
            self._size -= len(frame.json)
            through.append(frame)
