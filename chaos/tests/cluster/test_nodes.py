"""A node is lost and comes back; it is mended by `recover` too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage_chaos.deploy.providers import detect
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_admin import Admin
from moorage_chaos.drivers.kubernetes_api import Api, Where
from moorage_chaos.drivers.kubernetes_hands import Hands
from moorage_chaos.drivers.kubernetes_nodes import Nodes
from moorage_chaos.drivers.kubernetes_object import Object
from moorage_chaos.faults.journal import FileJournal, read
from moorage_chaos.on_kubernetes import _current

from .test_recover import NAME, NAMESPACE


async def test_a_node_is_cut_and_returns(tmp_path: Path) -> None:
    provider = detect(_current())
    if provider.kind == "other":
        pytest.skip("how a node of this cluster is lost is not known")
    api = await Api.connect(Where())
    nodes, journal = Nodes(api), FileJournal(tmp_path)
    admin = Admin(Hands(api, nodes, NAMESPACE, NAME, journal, {"do": "kubernetes"}), provider)
    try:
        await Object(api, NAMESPACE, NAME).settled()
        name = sorted(await nodes.helpers())[-1]
        evidence = await admin.cut_node(name)
        try:
            assert evidence.target == name
            (record,) = read(journal.path)[1]
            assert (record["what"], record["name"]) == ("node", name)
            await admin.until_node(name, ready=False)
            async with asyncio.timeout(60):
                with pytest.raises(DriverError):
                    await nodes.session(name)
        finally:
            await admin.mend_node(name)
        assert read(journal.path)[1] == []
        assert "t" in await (await nodes.session(name)).request("ping")
        await Object(api, NAMESPACE, NAME).settled()
    finally:
        await nodes.close()
        await api.close()
        journal.close()
