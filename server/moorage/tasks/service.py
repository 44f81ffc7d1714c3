"""What a replica has of tasks: the queue, and without Redis a worker in the same process."""

from __future__ import annotations

from moorage.events.log import EventLog
from moorage.settings import Settings
from moorage.storage.tasks import Tasks
from moorage.storage.tasks_memory import MemoryTasks
from moorage.storage.tasks_redis import RedisTasks
from moorage.tasks.handlers import load
from moorage.tasks.queue import TaskQueue
from moorage.tasks.runner import Runner


class TaskService:
    """Without ``REDIS_URL`` nobody else could push events to this process's readers, so it runs the tasks itself.

    Raises :class:`~moorage.errors.ConfigurationError` when it does and ``MOORAGE_TASKS`` cannot be loaded.
    """

    def __init__(self, settings: Settings, events: EventLog) -> None:
        self._settings = settings
        self._store = self._build_store()
        self.queue = TaskQueue(
            self._store, events, handler=settings.task_handler, event_max_bytes=settings.event_max_bytes
        )
        self.runner: Runner | None = None
        if settings.redis_url is None:
            together = settings.effective_state_url is None
            self.runner = Runner(settings, self._store, events, load(settings.tasks), together=together)

    def _build_store(self) -> Tasks:
        url = self._settings.effective_state_url
        if url is None:
            return MemoryTasks()
        return RedisTasks(
            url,
            name=f"moorage:{self._settings.replica_id}",
            ca_file=self._settings.redis_ca_file,
            timeout_ms=self._settings.redis_timeout_ms,
        )

    async def start(self) -> None:
        """Waits for nothing."""
        await self._store.start()
        if self.runner is not None:
            self.runner.start()

    async def drain(self) -> None:
        """What runs here has the drain window to end."""
        if self.runner is not None:
            await self.runner.stop(self._settings.drain_ms / 1000)

    async def stop(self) -> None:
        """Let go of everything at once."""
        if self.runner is not None:
            await self.runner.stop(0)
        await self._store.stop()
