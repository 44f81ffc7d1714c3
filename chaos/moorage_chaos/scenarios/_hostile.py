"""What a hostile client sends: packets no library would, and payloads of every wrong type."""

from __future__ import annotations

from typing import Any

PACKETS: tuple[bytes, ...] = (
    b"",
    b"4",
    b"42",
    b"42[",
    b"42[]",
    b"42{}",
    b"42null",
    b'42["rpc-call"]',
    b"42[123,{}]",
    b'42[null,"x"]',
    b'42["__proto__",{}]',
    b'42["connect",{}]',
    b'42["disconnect"]',
    b'42["rpc-call",{"method":"x"},"not a function"]',
    b'4299999999999999999999["ping"]',
    b'42-1["ping"]',
    b"43[]",
    b"431[1]",
    b"43999999[{}]",
    b"44{}",
    b'451-["x",{"_placeholder":true,"num":0}]',
    b'4599-["x"]',
    b"461-[]",
    b'47["x"]',
    b"40",
    b"40{}",
    b"40/admin,{}",
    b"41/admin,",
    b'42/admin,["ping"]',
    b"0{}",
    b"5",
    b"6",
    b"9",
    b"bAAAA",
    b'42["ping"' + b"," * 1000 + b"]",
    b'42["ping",' + b"[" * 5000 + b"]" * 5000 + b"]",
    b'42["ping",1e999999]',
    b'42["ping","\\ud800"]',
    b'42["' + b"e" * 100_000 + b'"]',
)
"""Each is sent as one text frame on a connection of its own."""

EVENTS = (
    "ping",
    "app-state",
    "rpc-register",
    "rpc-unregister",
    "rpc-call",
    "rpc-cancel",
    "session-alive",
    "machine-alive",
    "session-end",
    "message",
    "subscribe",
    "unsubscribe",
    "reply",
    "no-such-event",
)
"""PROTOCOL, "client → server", and one that is not there."""

PAYLOADS: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    "text",
    [],
    [[]],
    {},
    {"method": None},
    {"method": 5, "params": {}},
    {"method": ["x"], "timeoutMs": {}},
    {"method": "x", "timeoutMs": "soon", "requestId": 7, "onTargetLost": []},
    {"sid": {}, "time": "now", "message": [1], "localId": {}},
    {"machineId": 9, "time": None, "state": {"deep": [[[[]]]]}},
    {"sessionId": ["a"], "lastEventId": -1, "lastSeq": "x", "epoch": {}},
    {"requestId": {"$ne": 1}},
    {"__proto__": {"polluted": True}, "constructor": 1},
)

BAD_CALLS: tuple[tuple[str, Any], ...] = (
    ("no method", {}),
    ("empty method", {"method": ""}),
    ("long method", {"method": "m" * 257}),
    ("number as method", {"method": 7}),
    ("negative timeout", {"method": "x", "timeoutMs": -1}),
    ("zero timeout", {"method": "x", "timeoutMs": 0}),
    ("text as timeout", {"method": "x", "timeoutMs": "1000"}),
    ("list as payload", []),
    ("null as payload", None),
)
"""Each must be answered ``invalid_params`` (PROTOCOL, RPC 1)."""

BAD_HANDSHAKES: tuple[tuple[Any, str], ...] = (
    ({}, "Missing authentication token"),
    ({"token": ""}, "Missing authentication token"),
    ({"token": "x", "clientType": "session-scoped"}, "Session ID required for session-scoped clients"),
    ({"token": "x", "clientType": "machine-scoped"}, "Machine ID required for machine-scoped clients"),
    ({"token": "x"}, "Invalid authentication token"),
    ({"token": "a.b.c"}, "Invalid authentication token"),
)
"""With the message of the refusal (PROTOCOL, "Refused before any handler can run")."""

ODD_HANDSHAKES: tuple[Any, ...] = (
    None,
    [],
    "x",
    5,
    {"token": {}},
    {"token": ["x"], "clientType": 4},
    [{"token": 1}],
)
"""Any refusal will do."""
