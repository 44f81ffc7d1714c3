"""``kubectl moorage report``: everything that somebody who helps would ask for, in one place."""

from __future__ import annotations

import datetime
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from moorage_operator import __version__
from moorage_operator.desired.inputs import references
from moorage_operator.desired.pod import METRICS_PORT, PORT
from moorage_operator.errors import ApiError, NotFound, SpecError
from moorage_operator.kubectl import pods, redact, status
from moorage_operator.kubectl.cluster import Body, Cluster
from moorage_operator.kubectl.logs import container_of
from moorage_operator.kubectl.scrape import is_running
from moorage_operator.kubectl.text import age, moment, table
from moorage_operator.resource import KIND, parse

OWNED = (
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Pod",
    "Service",
    "EndpointSlice",
    "ServiceAccount",
    "ConfigMap",
    "Secret",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    "NetworkPolicy",
)
"""Found by the labels of the object."""
OPTIONAL = ("ServiceMonitor", "ResourceQuota", "Node")
"""Not served everywhere, or not to everybody: nothing is missing without them."""
OPERATOR_PORT = 8080

README = """\
A report of kubectl moorage {version}, made {when} (UTC), Kubernetes {kubernetes}.

<name>/status.txt       what `kubectl moorage status` says
<name>/objects/         the RealtimeServer and everything that belongs to it, one file each
<name>/events.txt       events about any of them, oldest first
<name>/pods/            logs (also of the run before the last restart), metrics and /ready of each pod
operator/               the operator's Deployment, Lease, logs and metrics
cluster/                nodes and quotas, where they may be read

Secrets: names, keys and sizes only. Of ConfigMaps that the operator did not make: the same. Passwords in URLs and
values of plain environment variables that sound like secrets are hidden. Logs are as your code wrote them: look
through them before you pass this on.

{problems}
"""


@dataclass(slots=True)
class Report:
    """``files``: path in the report → text; ``problems``: what is missing from it, and why."""

    files: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, path: str, text: str) -> None:
        self.files[path] = redact.text(text if text.endswith("\n") or not text else text + "\n")

    def put_body(self, folder: str, body: Body, *, contents: bool = True) -> None:
        shown = yaml.safe_dump(redact.body(body, contents=contents), sort_keys=False, allow_unicode=True)
        self.put(f"{folder}/{body['kind'].lower()}-{body['metadata']['name']}.yaml", shown)

    def attempt(self, what: str, fetch: Callable[[], None]) -> None:
        """What fails is noted and left out."""
        try:
            fetch()
        except ApiError as error:
            self.problems.append(f"{what}: {error}")


def collect(
    cluster: Cluster,
    bodies: list[Body],
    *,
    operator_namespace: str,
    lines: int,
    now: datetime.datetime,
    say: Callable[[str], None],
) -> Report:
    """A report about ``bodies``, of the last ``lines`` of each log."""
    report = Report()
    for body in bodies:
        say(f"{body['metadata']['namespace']}/{body['metadata']['name']}")
        _one(cluster, report, body, lines, now)
    say("operator")
    report.attempt("operator", lambda: _operator(cluster, report, operator_namespace, lines))
    _around(cluster, report, sorted({body["metadata"]["namespace"] for body in bodies}))
    kubernetes = "unknown"
    try:
        kubernetes = cluster.version()
    except ApiError as error:
        report.problems.append(f"version: {error}")
    missing = "\n".join(f"- {problem}" for problem in report.problems)
    report.put(
        "README.txt",
        README.format(
            version=__version__,
            when=now.strftime("%Y-%m-%d %H:%M:%S"),
            kubernetes=kubernetes,
            problems=f"Missing from this report:\n{missing}"
            if missing
            else "Nothing is missing from this report.",
        ),
    )
    return report


def _one(cluster: Cluster, report: Report, body: Body, lines: int, now: datetime.datetime) -> None:
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    root = f"{namespace}-{name}"
    report.put_body(f"{root}/objects", body)
    report.attempt(
        f"{root} status",
        lambda: report.put(f"{root}/status.txt", "\n".join(status.render(status.look(cluster, body), now))),
    )
    found: list[Body] = []
    for kind in (*OWNED, "ServiceMonitor"):
        found += _listed(cluster, report, kind, namespace, f"{pods.NAME}=moorage,{pods.INSTANCE}={name}")
    for child in found:
        report.put_body(f"{root}/objects", child)
    _referenced(cluster, report, body, root, {(c["kind"], c["metadata"]["name"]) for c in found})
    names = {name, *(child["metadata"]["name"] for child in found)}
    report.attempt(f"{root} events", lambda: _events(cluster, report, namespace, root, names, now))
    for pod in (child for child in found if child["kind"] == "Pod"):
        _pod(cluster, report, pod, f"{root}/pods/{pod['metadata']['name']}", lines)


def _listed(
    cluster: Cluster, report: Report, kind: str, namespace: str | None, selector: str = ""
) -> list[Body]:
    try:
        return cluster.all(kind, namespace, selector)
    except ApiError as error:
        if kind not in OPTIONAL:
            report.problems.append(f"{kind}: {error}")
        return []


def _referenced(cluster: Cluster, report: Report, body: Body, root: str, there: set[tuple[str, str]]) -> None:
    """Secrets and ConfigMaps of the user's: that they exist, and which keys they have."""
    try:
        wanted = {(r.kind, r.name) for r in references(parse(body))} - there
    except SpecError as error:
        report.problems.append(f"{root} references: the spec is not understood: {error}")
        return
    namespace = body["metadata"]["namespace"]
    for kind, name in sorted(wanted):
        try:
            found = {"kind": kind, **cluster.get(kind, namespace, name)}
            report.put_body(f"{root}/objects", found, contents=False)
        except NotFound:
            report.put(f"{root}/objects/{kind.lower()}-{name}.missing", "named in the spec, does not exist\n")
        except ApiError as error:
            report.problems.append(f"{kind} {name}: {error}")


def _events(
    cluster: Cluster, report: Report, namespace: str, root: str, names: set[str], now: datetime.datetime
) -> None:
    strangers = {body["metadata"]["name"] for body in cluster.all(KIND, namespace)} - names
    chosen = [e for e in cluster.all("Event", namespace) if _about(e, names, strangers)]
    chosen.sort(key=lambda event: moment(_when(event)) or now)
    rows = []
    for event in chosen:
        about = event["involvedObject"]
        count = event.get("count") or 1
        rows.append(
            (
                age(_when(event), now),
                event.get("type", ""),
                event.get("reason", ""),
                f"{about.get('kind', '')}/{about.get('name', '')}",
                f"x{count}" if count > 1 else "",
                str(event.get("message", "")).replace("\n", " "),
            )
        )
    report.put(
        f"{root}/events.txt", "\n".join(table(("AGE", "TYPE", "REASON", "ABOUT", "TIMES", "MESSAGE"), rows))
    )


def _about(event: Body, names: set[str], strangers: set[str]) -> bool:
    """Also about pods and ReplicaSets that are gone: their names begin with one that is not. ``strangers``
    are other objects whose names begin like ours (chat, chat-two)."""
    name = str((event.get("involvedObject") or {}).get("name", ""))
    if name in names:
        return True
    if any(name == other or name.startswith(f"{other}-") for other in strangers):
        return False
    return any(name.startswith(f"{known}-") for known in names)


def _when(event: Body) -> str:
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or event["metadata"].get("creationTimestamp", "")
    )


def _pod(cluster: Cluster, report: Report, pod: Body, folder: str, lines: int) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    container = container_of(pod)
    if any(container.get("containerID") for container in pods.containers(pod)):
        report.attempt(
            f"log of {name}",
            lambda: report.put(f"{folder}/log.txt", cluster.log(namespace, name, container, lines=lines)),
        )
    if pods.restarts(pod):
        report.attempt(
            f"earlier log of {name}",
            lambda: report.put(
                f"{folder}/log-before-restart.txt",
                cluster.log(namespace, name, container, lines=lines, previous=True),
            ),
        )
    if pods.component(pod) == "redis" or not is_running(pod):
        return
    report.attempt(
        f"metrics of {name}",
        lambda: report.put(f"{folder}/metrics.txt", cluster.page(namespace, name, METRICS_PORT, "metrics")),
    )
    if pods.component(pod) == "server":
        report.attempt(
            f"/ready of {name}",
            lambda: report.put(f"{folder}/ready.json", cluster.page(namespace, name, PORT, "ready")),
        )


def _operator(cluster: Cluster, report: Report, namespace: str, lines: int) -> None:
    selector = f"{pods.NAME}=moorage-operator"
    for deployment in cluster.all("Deployment", namespace, selector):
        report.put_body("operator", deployment)
    for pod in cluster.all("Pod", namespace, selector):
        report.put_body("operator", pod)
        _operator_pod(cluster, report, pod, lines)
    for lease in cluster.all("Lease", namespace):
        report.put_body("operator", lease)


def _operator_pod(cluster: Cluster, report: Report, pod: Body, lines: int) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    if not is_running(pod):
        return
    report.attempt(
        f"log of {name}",
        lambda: report.put(
            f"operator/{name}.log", cluster.log(namespace, name, container_of(pod), lines=lines)
        ),
    )
    report.attempt(
        f"metrics of {name}",
        lambda: report.put(
            f"operator/{name}.metrics.txt", cluster.page(namespace, name, OPERATOR_PORT, "metrics")
        ),
    )


def _around(cluster: Cluster, report: Report, namespaces: list[str]) -> None:
    for node in _listed(cluster, report, "Node", None):
        report.put_body("cluster", node)
    for namespace in namespaces:
        for quota in _listed(cluster, report, "ResourceQuota", namespace):
            report.put_body(f"cluster/{namespace}", quota)


def write(report: Report, target: Path) -> None:
    """A folder, or one file when ``target`` ends in .tar.gz or .tgz: whole, or not at all.

    Raises ``FileExistsError`` when it is there, ``OSError`` when it cannot be written.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already; choose another with -o")
    target.parent.mkdir(parents=True, exist_ok=True)
    packed = target.name.endswith((".tar.gz", ".tgz"))
    name = target.name.removesuffix(".tgz").removesuffix(".tar.gz")
    workshop = Path(tempfile.mkdtemp(prefix=".moorage-report-", dir=target.parent))
    try:
        folder = workshop / name
        for path, text in report.files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        if packed:
            archive = workshop / "archive"
            with tarfile.open(archive, "w:gz") as tar:
                tar.add(folder, arcname=name)
            os.replace(archive, target)
        else:
            os.replace(folder, target)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
