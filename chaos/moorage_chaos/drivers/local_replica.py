"""Places for replicas and workers on this machine: names and ports, and the process that is there now."""

from __future__ import annotations

from moorage_chaos.drivers.base import DriverError, State
from moorage_chaos.drivers.keeper import Child


class LocalPlace:
    """Meets :class:`moorage_chaos.drivers.base.Place`. Changed by the driver only."""

    def __init__(self, link: str) -> None:
        self.link = link
        self.id = ""
        self.generation = 0
        self.metrics_port = 0
        self.host = "127.0.0.1"
        """Where its process listens; in a network namespace another address."""
        self.redis_url = ""
        self.child: Child | None = None
        self.ready = False
        self.paused = False
        self.asked = False
        """The harness itself is ending it."""

    def begin(self, replica_id: str, metrics_port: int) -> None:
        """A new process comes: what it will be called and where its metrics are."""
        self.id = replica_id
        self.generation += 1
        self.metrics_port = metrics_port
        self.child = None
        self.ready = self.paused = self.asked = False

    def environment(self, secret_key: str) -> dict[str, str]:
        return {
            "METRICS_PORT": str(self.metrics_port),
            "REDIS_URL": self.redis_url,
            "SECRET_KEY": secret_key,
            "MOORAGE_REPLICA_ID": self.id,
            "MOORAGE_HOST": self.host,
        }

    @property
    def process(self) -> Child:
        """Raises DriverError if none runs."""
        if self.child is None or self.child.exit_code is not None:
            raise DriverError(f"{self.link} does not run")
        return self.child

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.exit_code is None

    @property
    def exit_code(self) -> int | None:
        return self.child.exit_code if self.child is not None else None

    @property
    def pid(self) -> int:
        return self.child.pid if self.child is not None else 0

    @property
    def state(self) -> State:
        if not self.running:
            return "dead" if self.child is not None or not self.generation else "starting"
        if self.paused:
            return "paused"
        return "ready" if self.ready else "not-ready"

    @property
    def metrics_url(self) -> str:
        return f"http://{self.host}:{self.metrics_port}/metrics"


class LocalWorker(LocalPlace):
    """A worker: nobody connects to it, its metrics tell that it has begun."""


class LocalReplica(LocalPlace):
    """Meets :class:`moorage_chaos.drivers.base.Replica`."""

    def __init__(self, link: str) -> None:
        super().__init__(link)
        self.port = 0
        self.front_port = 0

    def environment(self, secret_key: str) -> dict[str, str]:
        return {**super().environment(secret_key), "PORT": str(self.port)}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.front_port}"

    @property
    def direct_url(self) -> str:
        return f"http://{self.host}:{self.port}"
