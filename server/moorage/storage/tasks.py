"""What must outlive a worker: tasks, their queue, results, questions and answers. The interface and its values.

Implementations: :class:`~moorage.storage.tasks_memory.MemoryTasks` (one process) and
:class:`~moorage.storage.tasks_redis.RedisTasks`. Values of users (input, result, question, answer) are JSON texts.

An *attempt* is one worker's hold on a task. Its number is handed out here, rises with each :meth:`Tasks.begin`, and
is named with every later step: a step of an attempt that is not the latest changes nothing (:attr:`Hold.LOST`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

Status = Literal["queued", "running", "done", "failed"]

QUEUE_MAX = 100_000
"""Tasks of one handler that wait or run before new ones are refused: some hundred megabytes of inputs at most sizes
that are common, and hours of work for any set of workers."""

SESSION_MAX = 100
"""Tasks that a session remembers."""

GAVE_UP = "Too many workers died while they ran it"
"""Error of a task that was ended for that. A worker whose handler does not end when cancelled counts, too."""

KNOWN_FOR_MS = 86_400_000
"""[ms] A handler that no worker announced for so long is forgotten."""


class Hold(Enum):
    """What became of a step of an attempt."""

    KEPT = "kept"
    LOST = "lost"
    """A later attempt has the task, or it was deleted: nothing was changed."""
    GONE = "gone"
    """There is no record: it was deleted, or the storage lost all it had. :meth:`Tasks.restore` knows which."""


class Refused(Enum):
    """Why a task was not queued."""

    UNKNOWN_HANDLER = "unknown handler"
    FULL = "full"
    LATE = "late"
    """The storage got to it only after the caller had stopped waiting."""


@dataclass(frozen=True, slots=True)
class Record:
    """A task. ``questions``: the open ones, in no order. ``first_id``, ``first_seq``: where its
    ``session_created`` is in the log, once known. ``result``: of a done task; ``error``: of a failed one."""

    id: str
    account: str
    session_id: str
    handler: str
    input: bytes
    status: Status = "queued"
    attempts: int = 0
    result: bytes | None = None
    error: str | None = None
    questions: tuple[bytes, ...] = ()
    first_id: str | None = None
    first_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """An entry of the queue, held by whoever took it."""

    task_id: str
    handler: str
    entry: str


@dataclass(frozen=True, slots=True)
class Begun:
    """``record.attempts`` is the number of this attempt. ``ended``: there is nothing to run, its worker died
    between storing the result and telling it, or too many died. ``epoch``: changes when
    the storage loses all it has."""

    record: Record
    ended: bool
    epoch: str


@dataclass(frozen=True, slots=True)
class Answers:
    """``answers``: question id → answer. ``open``: the ids asked for that are stored and unanswered."""

    answers: Mapping[str, bytes] = field(default_factory=dict)
    open: Collection[str] = ()


class Tasks(Protocol):
    """Every method is bounded in time and raises :class:`~moorage.errors.BackplaneError`."""

    durable: bool
    """What is kept outlives this process."""

    async def start(self) -> None:
        """Get ready; does not wait for the storage to be there."""

    async def stop(self) -> None:
        """Let go of connections."""

    # -- what replicas do --------------------------------------------------------------------------------
    async def add(self, record: Record) -> Refused | None:
        """Queue it, or not at all; it becomes the session's latest. A handler is unknown only when others are
        known: while no worker has ever been there, every name is taken."""

    async def get(self, account: str, task_id: str) -> Record | None:
        """None: unknown, another account's, or ended longer ago than tasks are kept."""

    async def latest(self, account: str, session_id: str) -> Record | None:
        """The task of the session that was added last."""

    async def answer(self, account: str, session_id: str, question_id: str, answer: bytes) -> bool:
        """Hand ``answer`` to whoever asks; False: unknown, another's, closed or answered."""

    async def forget(self, account: str, session_id: str) -> None:
        """The session is gone: so are its tasks (of the :data:`SESSION_MAX` latest), queued, running or ended."""

    # -- what workers do ---------------------------------------------------------------------------------
    async def take(
        self, worker: str, handlers: Collection[str], count: int, wait_ms: int, takeover_ms: int | None
    ) -> list[Ticket]:
        """Up to ``count``: first those whose worker was not heard of for ``takeover_ms`` (None: not these), then
        new ones; waits for these up to ``wait_ms``."""

    async def begin(self, worker: str, ticket: Ticket, takeover_ms: int, lost_max: int) -> Begun | None:
        """Make a new attempt. None: the ticket is another's meanwhile, or its task is gone. A task that lost its
        worker ``lost_max`` times is ended as failed."""

    async def beat(
        self, worker: str, handlers: Collection[str], held: Sequence[tuple[str, int]]
    ) -> list[Hold]:
        """This worker lives, has these handlers, and holds these (task id, attempt)."""

    async def restore(self, worker: str, record: Record, epoch: str) -> tuple[Hold, str]:
        """Bring back a running record and its entry in the queue, if the storage lost them since ``epoch``
        (:class:`Begun`); LOST: the task was deleted, or a later attempt has it. With the epoch now."""

    async def note_first(self, task_id: str, attempt: int, first_id: str, first_seq: int) -> Hold:
        """Where the task's ``session_created`` is."""

    async def finish(
        self, task_id: str, attempt: int, status: Literal["done", "failed"], outcome: bytes
    ) -> Hold:
        """Store result (done) or error text (failed), and close its questions. May be repeated."""

    async def acknowledge(self, task_id: str, attempt: int, keep_ms: int) -> Hold:
        """The ended task was told of: its ticket goes, its record stays for ``keep_ms`` (0: for ever)."""

    async def release(self, task_id: str, attempt: int) -> Hold:
        """Hand it back to the queue, for another worker to begin at once; not counted as a lost worker."""

    async def ask(self, task_id: str, attempt: int, question_id: str, question: bytes) -> Hold:
        """Open a question, unless it is answered already."""

    async def close(self, task_id: str, attempt: int, question_id: str) -> bytes | None:
        """The answer that came in the end, or None: from now on it cannot be answered."""

    async def answers(self, task_id: str, question_ids: Sequence[str]) -> Answers:
        """What became of these questions."""

    async def woken(self, worker: str, wait_ms: int) -> bool:
        """Wait until a question of a task of ``worker`` is answered, at most ``wait_ms``. A hint only: the truth
        is :meth:`answers`'."""
