"""Counting and appending in one step, so that the order of the numbers is the order of delivery."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from moorage.cluster import wire

COUNTER_KEY = "moorage:update-seq"
"""Hash of all counters."""

SCRIPT = """
local seq = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'uid', ARGV[3], 'nsp', '/', 'type', '3',
  'data', ARGV[4] .. seq .. ARGV[5])
return seq
"""
"""Always sent whole (EVAL): a script cache is lost at a failover."""


def command(
    counter: str,
    event: str,
    payload: dict[str, Any],
    rooms: Collection[str],
    except_: Collection[str],
    *,
    stream: str,
    maxlen: int,
) -> list[bytes | str | int]:
    """The command that counts ``counter`` up, puts the number into ``payload`` as ``seq`` and appends the event.

    Its sender is no node, so every reader delivers it, ours too. Raises :class:`TypeError` or
    :class:`ValueError` for a payload that JSON cannot hold.
    """
    mark = secrets.token_hex(16)
    data = wire.encode_data(wire.broadcast(event, [{**payload, "seq": mark}], wire.opts(rooms, except_)))
    if not data.startswith(b"{"):
        raise TypeError("a counted payload cannot hold bytes")
    before, after = data.split(b'"%b"' % mark.encode())
    return ["EVAL", SCRIPT, 2, COUNTER_KEY, stream, counter, maxlen, wire.EMITTER_UID, before, after]
