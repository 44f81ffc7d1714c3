"""A process that appends broadcast entries to the adapter's stream as fast as told, as a busy peer does.

``python -m moorage_chaos.pressure URL STREAM RATE SECONDS ROOM``: entries in the wire format of the Node
adapter 0.3, written as the emitter does, without MAXLEN; one in ten goes to ``ROOM``, the rest to a room
nobody is in. Prints one JSON line: ``{"appended", "seconds", "addressed", "longest"}``; ``longest`` is the
stream's greatest length seen.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import redis

BATCHES_PER_S = 50
"""Entries of 20 ms go in one pipeline: even enough for a reader, cheap enough for us."""

ADDRESSED = 10
"""One entry in so many has recipients (MATRIX, stream-pressure)."""


def entry(number: int, room: str) -> dict[str, str]:
    """Fields of one stream entry: a broadcast of event ``pressure`` with its number."""
    packet = {"type": 2, "data": ["pressure", {"n": number, "pad": "x" * 64}]}
    target = room if number % ADDRESSED == 0 else "moorage-chaos:nobody"
    data = {"packet": packet, "opts": {"rooms": [target], "except": [], "flags": {}}}
    return {"uid": "emitter", "nsp": "/", "type": "3", "data": json.dumps(data)}


def press(client: Any, stream: str, rate: int, seconds: float, room: str) -> dict[str, float]:
    """Append until ``seconds`` are over; never more than was due by the clock."""
    begin = time.monotonic()
    sent = longest = 0
    while (passed := time.monotonic() - begin) < seconds:
        due = int(passed * rate)
        if due > sent:
            pipeline = client.pipeline(transaction=False)
            for number in range(sent, due):
                pipeline.xadd(stream, entry(number, room))
            pipeline.xlen(stream)
            longest = max(longest, pipeline.execute()[-1])
            sent = due
        time.sleep(1 / BATCHES_PER_S)
    return {
        "appended": sent,
        "seconds": round(time.monotonic() - begin, 3),
        "addressed": -(-sent // ADDRESSED),
        "longest": longest,
    }


def main() -> None:
    url, stream, rate, seconds, room = sys.argv[1:6]
    client = redis.Redis.from_url(url, socket_timeout=5)
    sys.stdout.write(json.dumps(press(client, stream, int(rate), float(seconds), room)) + "\n")


if __name__ == "__main__":
    main()
