"""``kubectl moorage clients``: connected sockets of each pod by client type, registrations, calls."""

from __future__ import annotations

from moorage_operator.kubectl.cluster import Body
from moorage_operator.kubectl.pods import component, is_ready
from moorage_operator.kubectl.scrape import Scrape
from moorage_operator.kubectl.text import table

TYPES = ("user-scoped", "session-scoped", "machine-scoped")
"""Always shown, in this order; others follow by name."""


def render(pods: list[Body], scrapes: dict[str, Scrape]) -> list[str]:
    """A table of the server pods, a sum, and what is odd about it."""
    servers = [pod for pod in pods if component(pod) == "server"]
    if not servers:
        return ["no server pods"]
    seen = {kind for scrape in scrapes.values() for kind in scrape.clients}
    types = [*TYPES, *sorted(seen - set(TYPES))]
    header = ("POD", *(kind.upper() for kind in types), "TOTAL", "REGISTRATIONS", "CALLS", "LAG")
    rows = []
    sums = dict.fromkeys(types, 0)
    for pod in servers:
        name = pod["metadata"]["name"]
        scrape = scrapes.get(name, Scrape(error="it does not run (yet)"))
        for kind, count in scrape.clients.items():
            sums[kind] += count
        rows.append((name, *_cells(scrape, types)))
    answered = [scrape for scrape in scrapes.values() if not scrape.error]
    calls = sum(scrape.calls or 0 for scrape in answered)
    total = str(sum(sums.values()))
    rows.append(("all", *(str(sums[kind]) for kind in types), total, "", str(calls), ""))
    return [*table(header, rows), *notes(servers, scrapes)]


def _cells(scrape: Scrape, types: list[str]) -> list[str]:
    counts = [str(scrape.clients[kind]) if kind in scrape.clients else "" for kind in types]
    lag = "" if scrape.lag_ms is None else f"{scrape.lag_ms:.0f}ms"
    numbers = [scrape.connections, scrape.registrations, scrape.calls]
    return [*counts, *("" if n is None else str(n) for n in numbers), lag]


def notes(servers: list[Body], scrapes: dict[str, Scrape]) -> list[str]:
    """Pods that did not answer, and replicas that do not agree."""
    lines = []
    for pod in servers:
        name = pod["metadata"]["name"]
        scrape = scrapes.get(name)
        if scrape is None:
            lines.append(f"  ! {name}: it does not run (yet)")
        elif scrape.error:
            lines.append(f"  ! {name}: {scrape.error}")
    ready = {pod["metadata"]["name"] for pod in servers if is_ready(pod)}
    known = {
        scrape.registrations
        for name, scrape in scrapes.items()
        if name in ready and scrape.registrations is not None
    }
    if len(known) > 1:
        numbers = ", ".join(str(count) for count in sorted(known))
        lines.append(
            f"  ! the replicas know different numbers of registrations ({numbers}): right while clients come and "
            "go; if it stays, Redis does not join them (docs/operator/failures/redis.md)"
        )
    return lines


def complete(pods: list[Body], scrapes: dict[str, Scrape]) -> bool:
    """Every server pod answered."""
    names = [pod["metadata"]["name"] for pod in pods if component(pod) == "server"]
    return all(name in scrapes and not scrapes[name].error for name in names)
