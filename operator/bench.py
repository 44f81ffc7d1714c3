"""Many objects against a real API server and its controllers: how long until the last is Ready, what rest costs.

No kubelet takes part: the pods are kept off every node by a selector and marked ready by this program, so that the
figures are the operator's and Kubernetes', not those of containers. ``make bench-operator`` (needs ``make cluster``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from moorage_chaos.bench import report
from moorage_operator.api import Api, path_of
from moorage_operator.errors import ApiError
from moorage_operator.resource import API_VERSION, KIND

NAMESPACE = "moorage-bench"
REST_SECONDS = 30.0
"""[s] How long rest is looked at."""
GIVE_UP_SECONDS = 900.0
"""[s] Bound of the whole start."""


def server(number: int) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": f"b{number}", "namespace": NAMESPACE},
        "spec": {
            "image": "none",
            "replicas": 2,
            "rollout": {"minReadySeconds": 0},
            "scheduling": {"nodeSelector": {"moorage.dev/nowhere": "true"}, "topologySpread": False},
        },
    }


async def mark_ready(api: Api) -> None:
    """What a kubelet would do; until cancelled."""
    marked: set[str] = set()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in ("Ready", "ContainersReady")
    ]
    status = {"status": {"phase": "Running", "conditions": ready}}

    async def one(pod: dict[str, Any]) -> None:
        path = path_of("Pod", NAMESPACE, pod["metadata"]["name"], "status")
        try:
            await api.request(
                "PATCH", path, body=status, content_type="application/strategic-merge-patch+json"
            )
        except ApiError:
            marked.discard(pod["metadata"]["uid"])

    while True:
        pods = [p for p in await api.list("Pod", NAMESPACE) if p["metadata"]["uid"] not in marked]
        marked |= {pod["metadata"]["uid"] for pod in pods}
        for start in range(0, len(pods), 8):
            await asyncio.gather(*(one(pod) for pod in pods[start : start + 8]))
        await asyncio.sleep(0.5)


async def until_ready(api: Api, count: int) -> float:
    """[s] Until the last object is Ready."""
    began = time.monotonic()
    while time.monotonic() - began < GIVE_UP_SECONDS:
        ready = 0
        for body in await api.list(KIND, NAMESPACE):
            conditions = {c["type"]: c["status"] for c in (body.get("status") or {}).get("conditions") or []}
            ready += conditions.get("Ready") == "True" and conditions.get("Progressing") == "False"
        if ready == count:
            return time.monotonic() - began
        await asyncio.sleep(1)
    raise SystemExit("bench: not all became Ready")


async def requests(port: int) -> dict[str, float]:
    """verb → requests of the operator so far, by its own count."""
    found: dict[str, float] = {}
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        for line in (await answer.text()).splitlines():
            if line.startswith("moorage_operator_api_requests_total{"):
                verb = line.split('verb="')[1].split('"')[0]
                found[verb] = found.get(verb, 0) + float(line.rsplit(" ", 1)[1])
    return found


def memory_mib(pid: int) -> float:
    """[MiB] Resident memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """[s] User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(count: int, port: int) -> list[dict[str, Any]]:
    api = await Api.connect()
    command = [sys.executable, "-m", "moorage_operator.cli", "--no-lease", "--namespace", NAMESPACE]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    await _namespace(api)
    operator = await asyncio.create_subprocess_exec(
        *command, "--port", str(port), "--log-level", "error", env=environment
    )
    marker = asyncio.create_task(mark_ready(api))
    try:
        await asyncio.sleep(5)
        for number in range(count):
            await api.create(server(number))
        seconds = await until_ready(api, count)
        marker.cancel()
        total = await requests(port)
        await asyncio.sleep(5)
        before, cpu = await requests(port), cpu_seconds(operator.pid)
        await asyncio.sleep(REST_SECONDS)
        after, used = await requests(port), cpu_seconds(operator.pid) - cpu
        writes = sum(after.get(verb, 0) - before.get(verb, 0) for verb in ("PATCH", "POST", "PUT", "DELETE"))
        reads = after.get("GET", 0) - before.get("GET", 0)
        memory = memory_mib(operator.pid)
    finally:
        marker.cancel()
        operator.terminate()
        await operator.wait()
        await api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        await api.close()
    return [
        row("operator-last-ready", "s", round(seconds, 1)),
        row("operator-requests-per-object-to-ready", "requests", round(sum(total.values()) / count, 1)),
        row("operator-writes-at-rest", "requests", writes, goal=0),
        row("operator-reads-at-rest", "requests", reads, goal=0),
        row("operator-cpu-at-rest", "% of a core", round(100 * used / REST_SECONDS, 2)),
        row("operator-memory", "MiB", round(memory, 1)),
    ]


def row(name: str, unit: str, ours: float, goal: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "unit": unit, "ours": ours, "better": "lower"}
    return found if goal is None else {**found, "goal": f"ours <= {goal:g}", "met": ours <= goal}


def add(rows: list[dict[str, Any]], objects: int, build: Path) -> None:
    """To ``bench.json`` and ``bench.md`` in ``build``, beside what `make bench` wrote there, in place of older ones."""
    path = build / "bench.json"
    machine = {"cpus": os.cpu_count(), "python": platform.python_version()}
    content = json.loads(path.read_text()) if path.exists() else report.document(machine, [], {}, [])
    names = {found["name"] for found in rows}
    content["runs"] = [found for found in content["runs"] if found["name"] not in names] + rows
    content["load"]["operatorObjects"] = objects
    report.save(content, build)


async def _namespace(api: Api) -> None:
    try:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await api.request("POST", "/api/v1/namespaces", body=body)
    except ApiError as error:
        raise SystemExit(f"bench: {error}; delete namespace {NAMESPACE} first") from None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--port", type=int, default=18080, help="of the operator's metrics")
    parser.add_argument("--build", type=Path, default=Path("build"), help="folder of bench.json and bench.md")
    options = parser.parse_args()
    rows = asyncio.run(run(options.objects, options.port))
    add(rows, options.objects, options.build)
    table = [f"{found['name']:42} {found['ours']:>10} {found['unit']}" for found in rows]
    sys.stdout.write("\n".join(table) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
