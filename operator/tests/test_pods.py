"""What the deletion of a pod costs."""

from __future__ import annotations

import pytest

from moorage_operator.pods import Pods


class Known(Pods):
    """Addresses are answers."""

    async def connections(self, address: str) -> int | None:
        return int(address) if address else None


@pytest.mark.parametrize(
    ("answers", "costs"),
    [
        (["3", "0", "7"], [3, 0, 7]),
        # One that is too busy to answer has many rather than none.
        (["3", "", "7"], [3, 7, 7]),
        (["0", ""], [0, 0]),
        (["", ""], []),
        ([], []),
    ],
)
async def test_costs(answers: list[str], costs: list[int]) -> None:
    addresses = {f"pod-{n}": answer for n, answer in enumerate(answers)}
    assert list((await Known().deletion_costs(addresses)).values()) == costs
