"""Undo what a harness that died left in a cluster: records of the journal whose ``do`` is ``kubernetes``.

Each carries ``context``, ``kubeconfig``, ``namespace`` and ``what``:

==========  ==========================================================================================
``heal``    ``pods`` (uids), ``node``: wake their processes and remove the rules in their network namespaces
``redis``   ``name``: let the operator go on; it scales Redis back up
``spec``    ``path``, ``spec``: fields of a RealtimeServer as they were (null: not set); waits until it is Ready
``delete``  ``path``: an object of the harness's own
``node``    ``name``, ``argv`` (may be empty): run the command that mends the node, and uncordon it
==========  ==========================================================================================
"""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath
from typing import Any

from moorage_chaos.deploy.providers import run
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import RTS, Api, Where
from moorage_chaos.drivers.kubernetes_nodes import Nodes
from moorage_chaos.drivers.kubernetes_object import Object


def undo(record: dict[str, Any]) -> str:
    """Do what the record says; a line about it. Raises DriverError if the cluster did not let it happen."""
    return asyncio.run(_undo(record))


async def _undo(record: dict[str, Any]) -> str:
    api = await Api.connect(Where(record.get("context", ""), record.get("kubeconfig", "")))
    try:
        match record["what"]:
            case "heal":
                return await _heal(api, record)
            case "redis":
                path = f"{RTS}/namespaces/{record['namespace']}/realtimeservers/{record['name']}"
                await api.patch(path, {"spec": {"paused": False}})
                return f"the operator brings the Redis of {record['name']} back"
            case "spec":
                return await _spec(api, record)
            case "delete":
                await api.delete(record["path"])
                return f"removed {record['path']}"
            case "node":
                return await _node(api, record)
        return f"left as it is: {record}"
    finally:
        await api.close()


async def _heal(api: Api, record: dict[str, Any]) -> str:
    nodes = Nodes(api)
    try:
        session = await nodes.session(record["node"])
        healed = (await session.request("heal", pods=record["pods"]))["healed"]
    finally:
        await nodes.close()
    return "; ".join(healed) or f"nothing was in force in the pods on {record['node']}"


async def _spec(api: Api, record: dict[str, Any]) -> str:
    path = PurePosixPath(record["path"])
    await api.patch(record["path"], {"spec": record["spec"]})
    await Object(api, record["namespace"], path.name).settled()
    return f"{path.name} has the settings it had, and is Ready"


async def _node(api: Api, record: dict[str, Any]) -> str:
    if record["argv"]:
        done = await asyncio.to_thread(run, record["argv"])
        if done.returncode:
            raise DriverError(f"{' '.join(record['argv'])}: {done.stderr.strip()}")
    await api.patch(f"/api/v1/nodes/{record['name']}", {"spec": {"unschedulable": None}})
    return f"node {record['name']} is back and takes pods"
