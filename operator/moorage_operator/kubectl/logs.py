"""``kubectl moorage tail``: the logs of all pods of an object, merged, each line with its pod."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from moorage_operator.errors import ApiError, OperatorError
from moorage_operator.kubectl.cluster import Body, Cluster
from moorage_operator.kubectl.pods import component, pods_of

Say = Callable[[str], None]

LOOK_SECONDS = 3.0
"""[s] Between looks for new pods."""
AGAIN_SECONDS = 1.0
"""[s] Before a log that ended is asked for anew: its container may be starting."""
WAITING_LINES = 10_000
"""[lines] Between the pods and the terminal; a pod that is ahead of it by more waits."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which logs, and from where on."""

    namespace: str
    names: tuple[str, ...]
    """Names of RealtimeServers."""
    components: frozenset[str]
    since: float | None = None
    lines: int | None = None


def split(line: str) -> tuple[str, str]:
    """A line as the API server gives it → (time stamp, text)."""
    stamp, found, text = line.partition(" ")
    return (stamp, text) if found and stamp[:4].isdigit() else ("", line)


def prefix(name: str, width: int) -> str:
    return f"{name:<{width}} | "


def merged(logs: dict[str, str], *, stamps: bool) -> Iterator[str]:
    """Whole logs by pod → lines in the order of their time stamps."""
    width = max((len(name) for name in logs), default=0)
    streams = [_stamped(name, text) for name, text in sorted(logs.items())]
    for stamp, name, text in heapq.merge(*streams, key=lambda line: line[0]):
        yield prefix(name, width) + (f"{stamp} {text}" if stamps else text)


def _stamped(name: str, log: str) -> Iterator[tuple[str, str, str]]:
    """A line without a time of its own (a cut one) stays behind the one before it."""
    last = ""
    for line in log.splitlines():
        stamp, text = split(line)
        last = stamp or last
        yield last, name, text


def chosen(cluster: Cluster, wanted: Wanted) -> list[Body]:
    found = [pod for name in wanted.names for pod in pods_of(cluster, wanted.namespace, name)]
    return [pod for pod in found if component(pod) in wanted.components]


def container_of(pod: Body) -> str:
    return str(pod["spec"]["containers"][0]["name"])


def fetch(cluster: Cluster, wanted: Wanted, complain: Say) -> dict[str, str]:
    """Logs as they are now, by pod; one that cannot be had is complained about."""
    logs = {}
    for pod in chosen(cluster, wanted):
        name = pod["metadata"]["name"]
        try:
            logs[name] = cluster.log(
                wanted.namespace, name, container_of(pod), since=wanted.since, lines=wanted.lines
            )
        except ApiError as error:
            complain(f"{name}: {error}")
    return logs


class Following:
    """Reads each pod in a thread of its own; pods that come later are joined."""

    def __init__(self, cluster: Cluster, wanted: Wanted, say: Say, complain: Say, *, stamps: bool) -> None:
        self._cluster, self._wanted, self._stamps = cluster, wanted, stamps
        self._say, self._complain = say, complain
        self._lines: queue.Queue[tuple[str, str]] = queue.Queue(WAITING_LINES)
        self._readers: dict[str, threading.Thread] = {}
        self._gone = threading.Event()
        self._width = 0

    def run(self, done: Callable[[], bool] = lambda: False) -> None:
        """Until ``done`` says so (asked at least once a second) or KeyboardInterrupt."""
        look = 0.0
        try:
            while not done():
                if time.monotonic() >= look:
                    self._look(first=not look)
                    look = time.monotonic() + LOOK_SECONDS
                try:
                    name, line = self._lines.get(timeout=1.0)
                except queue.Empty:
                    continue
                self._print(name, line)
        finally:
            self._gone.set()

    def _print(self, name: str, line: str) -> None:
        stamp, text = split(line)
        self._say(prefix(name, self._width) + (f"{stamp} {text}" if self._stamps else text))

    def _look(self, *, first: bool) -> None:
        try:
            pods = chosen(self._cluster, self._wanted)
        except OperatorError as error:
            if first:
                raise
            self._complain(f"looking for new pods: {error}")
            return
        names = {pod["metadata"]["name"] for pod in pods}
        self._width = max([self._width, *map(len, names)])
        for pod in pods:
            name = pod["metadata"]["name"]
            if name in self._readers:
                continue
            if not first:
                self._complain(f"{name}: new")
            reader = threading.Thread(target=self._read, args=(pod, not first), daemon=True)
            self._readers[name] = reader
            reader.start()
        for name in [known for known in self._readers if known not in names]:
            self._complain(f"{name}: gone")
            del self._readers[name]

    def _read(self, pod: Body, whole: bool) -> None:
        """A pod that came while we watched is shown from its first line."""
        name, container = pod["metadata"]["name"], container_of(pod)
        since = None if whole else self._wanted.since
        lines = None if whole else self._wanted.lines
        last = ""
        while not self._gone.is_set():
            try:
                stream = self._cluster.follow(
                    self._wanted.namespace, name, container, since=since, lines=lines, after=last
                )
                for line in stream:
                    stamp, _ = split(line)
                    # Asked anew "from that second on" the log begins with what was already shown.
                    if stamp and stamp <= last:
                        continue
                    last = stamp or last
                    self._put(name, line)
            except ApiError as error:
                if error.status in (401, 403):
                    self._complain(f"{name}: {error}")
                    return
                if error.status == 404:
                    return
            if self._gone.wait(AGAIN_SECONDS) or name not in self._readers:
                return
            if last:
                since = lines = None

    def _put(self, name: str, line: str) -> None:
        while not self._gone.is_set():
            try:
                return self._lines.put((name, line), timeout=1.0)
            except queue.Full:
                continue


def components(text: str, known: Sequence[str] = ("server", "worker", "redis")) -> frozenset[str]:
    """``server,worker`` or ``all`` → a set. Raises ``ValueError`` for an unknown one."""
    found = frozenset(known) if text == "all" else frozenset(part for part in text.split(",") if part)
    if not found or found - set(known):
        raise ValueError(f"{text!r}: choose from {', '.join(known)}, or all")
    return found
