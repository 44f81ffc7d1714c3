from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from moorage_operator import lease as module
from moorage_operator.errors import Conflict, Unreachable
from moorage_operator.lease import Lease


class OneLease:
    """The API server as far as one Lease goes: optimistic locking by resourceVersion."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self.version = 0
        self.down = False

    async def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        if self.down:
            raise Unreachable("down")
        if self.body is None:
            return None
        return {"metadata": {"resourceVersion": str(self.version)}, "spec": dict(self.body["spec"])}

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.body is not None:
            raise Conflict("exists", status=409)
        self.body, self.version = body, 1
        return body

    async def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.down:
            raise Unreachable("down")
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("somebody was faster", status=409)
        self.body, self.version = body, self.version + 1
        return body

    @property
    def holder(self) -> str:
        assert self.body is not None
        return str(self.body["spec"]["holderIdentity"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 0.3)
    monkeypatch.setattr(module, "DURATION_SECONDS", 1)


def named(api: OneLease, holder: str) -> Lease:
    return Lease(api, "moorage-system", "moorage-operator", holder)  # type: ignore[arg-type]


async def test_one_of_two_holds_it_and_a_restart_in_place_has_it_again() -> None:
    api = OneLease()
    await named(api, "a").acquire()
    assert api.holder == "a"
    standby = asyncio.create_task(named(api, "b").acquire())
    await asyncio.sleep(0)
    await named(api, "a").acquire()
    assert not standby.done()
    standby.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await standby


async def test_a_standby_takes_over_when_it_is_not_renewed() -> None:
    api = OneLease()
    await named(api, "a").acquire()
    async with asyncio.timeout(10):
        await named(api, "b").acquire()
    assert api.holder == "b"


async def test_a_standby_waits_while_it_is_renewed() -> None:
    api = OneLease()
    first = named(api, "a")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):  # longer than the lease lasts
            await named(api, "b").acquire()
    assert api.holder == "a"
    assert not holding.done()
    holding.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await holding


async def test_a_holder_that_cannot_renew_gives_up_before_another_may_start() -> None:
    api = OneLease()
    first = named(api, "a")
    await first.acquire()
    api.down = True
    async with asyncio.timeout(10):
        await first.hold()


async def test_a_holder_that_lost_it_gives_up_and_release_leaves_others_alone() -> None:
    api = OneLease()
    first = named(api, "a")
    await first.acquire()
    assert api.body is not None
    api.body["spec"]["holderIdentity"] = "b"
    api.version += 1
    async with asyncio.timeout(10):
        await first.hold()
    await first.release()
    assert api.holder == "b"
    await named(api, "b").release()
    assert api.holder == ""
