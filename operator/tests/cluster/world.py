"""The cluster as tests see it: kubectl, an operator process, and a recorder of pods."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..schema import CRD, ROOT, kubectl, merged

NAMESPACE = "moorage-test"
SERVER = os.environ.get("MOORAGE_SERVER_IMAGE", "localhost/moorage-server:dev")
STANDIN = os.environ.get("MOORAGE_STANDIN_IMAGE", "localhost/moorage-standin:dev")
REDIS = os.environ.get("MOORAGE_REDIS_IMAGE", "localhost/redis:box")
BOX = ROOT / "chaos" / "testcluster" / "box.py"
CLIENTS = Path(__file__).parent / "clients"
POLL_SECONDS = 0.2

__all__ = [
    "CLIENTS",
    "CRD",
    "NAMESPACE",
    "REDIS",
    "ROOT",
    "SERVER",
    "Cluster",
    "One",
    "Operator",
    "Pods",
    "client",
    "end",
    "inside",
    "merged",
    "read",
    "server",
    "standin_connections",
]


def standin_connections(pod: str) -> int:
    """standin/moorage makes its number of connections from its host's name."""
    return sum(pod.encode()) % 97


def server(name: str, *, namespace: str = NAMESPACE, image: str = STANDIN, **spec: Any) -> dict[str, Any]:
    """A RealtimeServer with short times, so that a test is not mostly waiting."""
    quick = {
        "image": image,
        # One probe that is late on a busy machine is no replica less: only the pod's own 503 makes it unready.
        "probes": {"readiness": {"timeoutSeconds": 10}},
        "redis": {"image": REDIS},
        "drain": {"preStopSeconds": 1, "windowMs": 1000},
        "rollout": {"minReadySeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "moorage.dev/v1alpha1",
        "kind": "RealtimeServer",
        "metadata": {"name": name, "namespace": namespace},
        "spec": merged(quick, spec),
    }


class Cluster:
    """kubectl in one namespace (none: as the objects say), with the test's kubeconfig."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self.namespace = namespace

    def kubectl(
        self, *arguments: str, body: Any = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        text = json.dumps(body) if body is not None else None
        where = ["-n", self.namespace] if self.namespace else []
        command = [kubectl(), *where, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=150)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        done = self.kubectl("get", kind, name, "-o", "json", check=False)
        if done.returncode:
            assert "NotFound" in done.stderr, done.stderr
            return None
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def items(self, kinds: str, *selector: str) -> list[dict[str, Any]]:
        done = self.kubectl("get", kinds, "-o", "json", *selector)
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found

    def until(self, what: str, probe: Callable[[], Any], seconds: float = 60) -> Any:
        """The first true answer of ``probe``; fails with ``what`` when one asked for after that time is not true."""
        deadline = time.monotonic() + seconds
        while True:
            # Looked at before the question: on a busy machine the answer alone can take seconds.
            last = time.monotonic() > deadline
            if answer := probe():
                return answer
            if last:
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{self.story()}")
            time.sleep(POLL_SECONDS)

    def story(self) -> str:
        shown = self.kubectl("get", "rts,deploy,sts,pods", "-o", "wide", check=False).stdout
        status = self.kubectl("get", "rts", "-o", "jsonpath={.items[*].status}", check=False).stdout
        return f"{shown}\n{status}"

    def address(self, port: int) -> str:
        """URL of a NodePort."""
        addresses = self.items("nodes")[0]["status"]["addresses"]
        return f"http://{addresses[0]['address']}:{port}"


class One:
    """One RealtimeServer and its children."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.labels = ("-l", f"app.kubernetes.io/instance={name}")

    def apply(self, **spec: Any) -> None:
        body = server(self.name, namespace=self.cluster.namespace, **spec)
        self.cluster.kubectl("apply", "-f", "-", body=body)

    def patch(self, **spec: Any) -> None:
        self.cluster.kubectl("patch", "rts", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete(self) -> None:
        self.cluster.kubectl("delete", "rts", self.name, "--ignore-not-found", "--wait=false")

    def body(self) -> dict[str, Any]:
        return self.there("rts")

    def child(self, kind: str, suffix: str = "") -> dict[str, Any] | None:
        return self.cluster.get(kind, self.name + suffix)

    def there(self, kind: str, suffix: str = "") -> dict[str, Any]:
        found = self.child(kind, suffix)
        assert found is not None, f"no {kind} {self.name}{suffix}"
        return found

    def pods(self, component: str = "server") -> list[dict[str, Any]]:
        """Pods that are not terminating."""
        label = f"{self.labels[1]},app.kubernetes.io/component={component}"
        pods = self.cluster.items("pods", "-l", label)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def connections(self) -> list[int]:
        """What the pods' stand-ins report, ascending; two pods may have the same, and either may go then."""
        return sorted(standin_connections(pod["metadata"]["name"]) for pod in self.pods())

    def condition(self, kind: str) -> dict[str, Any]:
        found = (self.child("rts") or {}).get("status") or {}
        return next((c for c in found.get("conditions") or [] if c["type"] == kind), {})

    def told(self, kind: str, reason: str, seconds: float = 60) -> dict[str, Any]:
        """Wait for a condition's reason."""
        self.cluster.until(f"{kind} {reason}", lambda: self.condition(kind).get("reason") == reason, seconds)
        return self.condition(kind)

    def ready(self, seconds: float = 90) -> dict[str, Any]:
        """Wait until Ready is True for the present generation and nothing moves; returns the object."""

        def settled() -> dict[str, Any] | None:
            body = self.body()
            status = body.get("status") or {}
            conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
            current = status.get("observedGeneration") == body["metadata"]["generation"]
            good = conditions.get("Ready") == "True" and conditions.get("Progressing") == "False"
            return body if current and good else None

        found: dict[str, Any] = self.cluster.until(f"{self.name} Ready", settled, seconds)
        return found

    def rolled(self, before: int) -> None:
        """Wait until the Deployment has rolled to a revision after ``before``, and the object is Ready again."""
        self.cluster.until("rolled", lambda: self.revision() > before)
        self.rolled_out()

    def rolled_out(self) -> None:
        """Wait until the Deployment has rolled out, and the object is Ready: until the operator's next status it is
        still Ready from before."""
        self.cluster.kubectl("rollout", "status", f"deployment/{self.name}", "--timeout=90s")
        self.ready()

    def revision(self) -> int:
        """How often the Deployment's pod template has changed, plus one."""
        annotations = self.there("deployment")["metadata"]["annotations"]
        return int(annotations["deployment.kubernetes.io/revision"])

    def events(self, reason: str) -> list[dict[str, Any]]:
        chosen = f"involvedObject.name={self.name},reason={reason}"
        return self.cluster.items("events", f"--field-selector={chosen}")


class Operator:
    """The operator as a process of this machine, inside the test cluster's network where that is there."""

    def __init__(self, log: Path, namespace: str = NAMESPACE, kubeconfig: Path | None = None) -> None:
        self._log, self._namespace, self._kubeconfig = log, namespace, kubeconfig
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "moorage_operator.cli", "--no-lease", "--port", "0"]
        command += ["--namespace", self._namespace]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
        if self._kubeconfig is not None:
            environment["KUBECONFIG"] = str(self._kubeconfig)
        elif Path("/run/netns/box").exists():
            command = [sys.executable, str(BOX), "exec", *command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        """SIGKILL: no last words."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def text(self) -> str:
        return self._log.read_text()


@dataclass
class Pods:
    """Records every change of the server pods; use as a context manager, then ask."""

    one: One
    serving: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    """(when [s, monotonic], backends of all pods that are Ready and not terminating), at each change"""

    def __enter__(self) -> Pods:
        columns = (
            "{.type}|{.object.metadata.name}|{.object.metadata.annotations.moorage\\.dev/backend}|"
            '{.object.status.conditions[?(@.type=="Ready")].status}|{.object.metadata.deletionTimestamp}{"\\n"}'
        )
        selector = f"app.kubernetes.io/component=server,app.kubernetes.io/instance={self.one.name}"
        command = [kubectl(), "-n", self.one.cluster.namespace, "get", "pods", "-l", selector]
        command += ["-w", "--output-watch-events"]
        self._process = subprocess.Popen(
            [*command, "-o", f"jsonpath={columns}"], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        # What happens before kubectl has begun is not recorded.
        self.one.cluster.until("the recorder has begun", lambda: self.serving)
        return self

    def _read(self) -> None:
        alive: dict[str, str] = {}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            parts = line.rstrip("\n").split("|")
            if len(parts) != 5:
                continue
            event, name, backend, ready, deleted = parts
            alive.pop(name, None)
            if event != "DELETED" and ready == "True" and not deleted:
                alive[name] = backend
            self.serving.append((time.monotonic(), tuple(sorted(alive.values()))))

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._thread.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        assert self.serving, "the recorder saw nothing: it proves nothing"

    def check_no_islands(self) -> None:
        """Never more than one without Redis, never two backends side by side."""
        for _, backends in self.serving:
            assert backends.count("") <= 1, f"more than one replica without Redis: {backends}"
            assert len(set(backends)) <= 1, f"two backends at once: {backends}"


def inside(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a client where it reaches node addresses: inside the test cluster's network, where that is there."""
    if Path("/run/netns/box").exists():
        command = [sys.executable, str(BOX), "exec", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def read(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """The next line; fails when none comes in time."""
    assert process.stdout is not None
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(process.stdout.readline()), daemon=True)  # type: ignore[union-attr]
    thread.start()
    thread.join(seconds)
    assert found, f"no line within {seconds:.0f} s"
    assert found[0], f"ended with {process.poll()}"
    return found[0].strip()


@contextmanager
def client(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python client of `clients/`, ended whatever happens."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    process = inside([sys.executable, str(CLIENTS / name), *arguments], environment)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()
