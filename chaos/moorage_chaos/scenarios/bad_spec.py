"""Objects that are wrong are refused by the API server, by the name of the field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import yaml

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import held
from moorage_chaos.checkers.bite import reached
from moorage_chaos.cluster import Own, merged
from moorage_chaos.deploy.commands import ROOT
from moorage_chaos.drivers.base import Can
from moorage_chaos.drivers.kubernetes_api import ApiError
from moorage_chaos.history import History
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

CASES = ROOT / "operator" / "tests" / "bad_specs.yaml"
"""The operator's own tests use the same list."""
AT_LEAST = 30
NAME = "bad"
DRY = {"dryRun": "All", "fieldValidation": "Strict"}


class BadSpec(Scenario):
    name = "bad-spec"
    promise = (
        "every one of some 40 wrong objects is refused by the API server with a message that names the field"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"cluster"})

    async def run(self, ctx: Context) -> None:
        own = Own(ctx.driver, NAME)
        for case in yaml.safe_load(CASES.read_text()):
            refusal = await _refusal(own, case)
            named = refusal is not None and case["field"] in refusal and case.get("contains", "") in refusal
            ctx.history.note("refused", case=case["case"], field=case["field"], named=named, message=refusal)

    def check(self, history: History) -> list[Promise]:
        def refused(history: History) -> Iterator[Promise]:
            notes = [note.value for note in history.notes("refused")]
            bad = [f"{n['case']}: {n['message'] or 'accepted'}" for n in notes if not n["named"]]
            yield Promise(
                "refused, by the field's name",
                f"{len(notes)}/{len(notes)}",
                f"{len(notes) - len(bad)}/{len(notes)}",
                "objects",
                held(not bad),
                "; ".join(bad[:5]),
            )

        return judge(
            history, (reached("cases", AT_LEAST, "objects", lambda h: len(h.notes("refused"))), refused)
        )


async def _refusal(own: Own, case: dict[str, Any]) -> str | None:
    """What the API server says to it; None if it would take it. Nothing of it is stored but, for a change that must be
    refused, a paused object that makes no pods."""
    body = own.smallest()
    body["metadata"]["name"] = case.get("name", NAME)
    body = merged(body, {"spec": case.get("spec", {})})
    if drop := case.get("drop"):
        del body["spec"][drop]
    collection = own.path("RealtimeServer")
    if after := case.get("after"):
        await own.create(paused=True, **after)
        try:
            patch = {"metadata": body["metadata"], "spec": body["spec"]}
            how = "application/merge-patch+json"
            await own.api.request("PATCH", own.own_path, body=patch, kind=how, query=DRY)
        except ApiError as error:
            return _words(error)
        finally:
            await own.delete()
        return None
    try:
        await own.api.request("POST", collection, body=body, query=DRY)
    except ApiError as error:
        return _words(error)
    return None


def _words(error: ApiError) -> str:
    """Raises it again if it is no refusal: a failed look is not an answer."""
    if error.status not in (400, 403, 409, 422):
        raise error
    return str(error)
