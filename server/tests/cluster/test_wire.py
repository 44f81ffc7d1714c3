"""The wire format, against facts seen on Node and against anything hypothesis can think of."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster import wire

SEEN_ON_NODE = (
    '{"packet":{"type":2,"data":["r",1]},"opts":{"rooms":["room1"],"except":["room2","room3"],"flags":{}}}'
)


def entry(**fields: str | bytes) -> list[bytes]:
    return [part if isinstance(part, bytes) else part.encode() for pair in fields.items() for part in pair]


def body_of(fields: list[bytes | str]) -> Any:
    message = wire.decode_entry([f if isinstance(f, bytes) else f.encode() for f in fields])
    assert isinstance(message, wire.Message)
    return message.body()


@pytest.mark.parametrize(
    ("namespace", "value"),
    [
        ("/", 47), ("/foo", 1501751), ("/chat", 46457863), ("/admin", 1438238848),
        ("/notifications", -1014064871), ("/é😀x", 105306779),
    ],
)  # fmt: skip
def test_namespace_hash(namespace: str, value: int) -> None:
    assert wire.namespace_hash(namespace) == value


def test_stream_names() -> None:
    assert wire.stream_of("socket.io", "/notifications") == "socket.io"
    assert wire.stream_of("socket.io", "/notifications", 4) == "socket.io--3"
    assert wire.stream_of("socket.io", "/chat", 4) == f"socket.io-{46457863 % 4}"
    assert "--0" not in "".join(wire.stream_of("s", f"/n{i}", 2) for i in range(50))


def test_channels() -> None:
    assert wire.public_channel("socket.io", "/") == "socket.io#/#"
    assert wire.private_channel("socket.io", "/", "f3a8") == "socket.io#/#f3a8#"


def test_an_entry_of_node() -> None:
    message = wire.decode_entry(entry(uid="f3a854acd6f4a6a6", nsp="/", type="3", data=SEEN_ON_NODE))
    assert isinstance(message, wire.Message)
    assert (message.uid, message.nsp, message.type) == ("f3a854acd6f4a6a6", "/", 3)
    body = message.body()
    assert isinstance(body, wire.Broadcast)
    assert body.event() == ["r", 1]
    assert body.opts.room_names == ["room1"]
    assert body.opts.except_names == ["room2", "room3"]


def test_our_entry_is_what_node_writes() -> None:
    data = wire.broadcast("r", [1], wire.opts(["room1"], ["room2", "room3"]))
    fields = wire.encode_entry("f3a854acd6f4a6a6", "/", wire.BROADCAST, data)
    assert fields == ["uid", "f3a854acd6f4a6a6", "nsp", "/", "type", "3", "data", SEEN_ON_NODE.encode()]


def test_what_is_not_set_is_left_out() -> None:
    data = wire.broadcast("e", [], wire.opts())
    assert "requestId" not in data
    assert data["opts"] == {"rooms": [], "except": [], "flags": {}}
    assert set(data["packet"]) == {"type", "data"}


def test_rooms_are_strings() -> None:
    assert wire.opts([5, "5"], [7])["rooms"] == ["5", "5"]
    body = body_of(
        wire.encode_entry("u", "/", 3, {"packet": {"data": ["e"]}, "opts": {"rooms": [5], "except": [7]}})
    )
    assert (body.opts.room_names, body.opts.except_names) == (["5"], ["7"])


def test_binary_makes_msgpack_in_base64() -> None:
    fields = wire.encode_entry("u", "/", 3, wire.broadcast("e", [{"a": [b"\x00\xff"]}], wire.opts(["r"])))
    assert not str(fields[-1]).startswith("{")
    inside = ormsgpack.unpackb(base64.b64decode(fields[-1]))
    assert inside["packet"]["data"] == ["e", {"a": [b"\x00\xff"]}]
    assert body_of(fields).event() == ["e", {"a": [b"\x00\xff"]}]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_binary_types(kind: Any) -> None:
    assert body_of(
        wire.encode_entry("u", "/", 3, wire.broadcast("e", [kind(b"x")], wire.opts()))
    ).event() == [
        "e",
        b"x",
    ]


def test_a_date_is_a_string_in_both_encodings() -> None:
    moment = datetime(2026, 11, 30, 6, 24, 0, 123000, tzinfo=UTC)
    packed = msgspec.msgpack.encode(
        {"packet": {"data": ["e", moment, b""]}, "opts": {"rooms": [], "except": []}}
    )
    assert b"\xd7\xff" in packed  # extension -1, as Node writes a Date
    body = body_of(["uid", "u", "nsp", "/", "type", "3", "data", base64.b64encode(packed)])
    assert body.event() == ["e", "2026-11-30T06:24:00.123Z", b""]
    ours = body_of(wire.encode_entry("u", "/", 3, wire.broadcast("e", [moment], wire.opts())))
    assert datetime.fromisoformat(ours.event()[1]) == moment


def test_undefined_of_notepack_is_none() -> None:
    payload = ormsgpack.packb({"type": 12, "uid": "u", "nsp": "/", "data": {"requestId": "r"}})
    undefined = payload.replace(b"\xa9requestId\xa1r", b"\xa9requestId\xa1r\xa6packet\xd4\x00\x00")
    undefined = undefined.replace(b"\xa4data\x81", b"\xa4data\x82")
    message = wire.decode_payload(undefined)
    assert isinstance(message, wire.Message)
    assert message.body() == wire.BroadcastAck("r", None)


def test_a_published_sample_of_node() -> None:
    data = b"\x82\xa9requestId\xb00123456789abcdef\xabclientCount\x01"
    payload = b"\x84\xa4type\x0b\xa4data" + data + b"\xa3uid\xb00123456789abcdef\xa3nsp\xa1/"
    message = wire.decode_payload(payload)
    assert isinstance(message, wire.Message)
    assert message.body() == wire.BroadcastClientCount("0123456789abcdef", 1)
    ours = {"requestId": "0123456789abcdef", "clientCount": 1}
    assert wire.encode_payload("0123456789abcdef", "/", 11, ours) == payload


GOOD_DATA: dict[int, dict[str, Any]] = {
    3: wire.broadcast("e", [1], wire.opts(["r"], [], {"timeout": 5}), "id"),
    4: {"opts": wire.opts(["s"]), "rooms": ["r"]},
    5: {"opts": wire.opts(["s"]), "rooms": ["r"]},
    6: {"opts": wire.opts(["s"]), "close": True},
    7: {"opts": wire.opts(), "requestId": "id"},
    8: {"requestId": "id", "sockets": [{"id": "s", "handshake": {}, "rooms": ["s"], "data": {}}]},
    9: {"packet": ["e", 1], "requestId": "id"},
    10: {"requestId": "id", "packet": [1]},
    11: {"requestId": "id", "clientCount": 2},
    12: {"requestId": "id", "packet": {"a": 1}},
}


@pytest.mark.parametrize("number", GOOD_DATA)
def test_every_type_travels_both_ways(number: int) -> None:
    data = GOOD_DATA[number]
    by_stream = body_of(wire.encode_entry("u", "/", number, data))
    published = wire.decode_payload(wire.encode_payload("u", "/", number, data))
    assert isinstance(published, wire.Message)
    by_channel = published.body()
    assert not isinstance(by_stream, wire.Malformed)
    assert type(by_stream) is type(by_channel)
    if isinstance(by_channel, wire.Broadcast):
        assert by_stream.event() == by_channel.event() == ["e", 1]
        assert by_channel.requestId == "id"
        assert by_channel.opts.flag("timeout") == 5
    else:
        assert by_stream == by_channel


@pytest.mark.parametrize("number", [1, 2, 13, 0, 99, -1])
def test_types_without_a_body_are_typed_too(number: int) -> None:
    message = wire.decode_entry(entry(uid="u", nsp="/", type=str(number)))
    assert isinstance(message, wire.Message)
    assert isinstance(message.body(), wire.Malformed)


POISON = [
    None, [], [b"uid"], entry(uid="u", nsp="/"), entry(uid="u", nsp="/", type="x", data="{}"),
    entry(uid="u", nsp="/", type="3"), entry(uid=b"\xff", nsp="/", type="3", data="{}"),
    entry(uid="u", nsp="/", type="3", data="{"), entry(uid="u", nsp="/", type="3", data="{}"),
    entry(uid="u", nsp="/", type="3", data="$$$ no base64 $"), entry(uid="u", nsp="/", type="3", data="AAAA"),
    entry(uid="u", nsp="/", type="3", data='{"packet":null,"opts":{"rooms":[],"except":[]}}'),
    entry(uid="u", nsp="/", type="3", data='{"packet":{"type":2,"data":["e"]}}'),
    entry(uid="u", nsp="/", type="3", data='{"packet":{"type":2,"data":["e"]},"opts":null}'),
    entry(uid="u", nsp="/", type="3", data='{"packet":{"type":2,"data":["e"]},"opts":{"rooms":{}}}'),
    entry(uid="u", nsp="/", type="3", data='{"packet":{"type":2},"opts":{}}'),
    entry(uid="u", nsp="/", type="4", data='{"opts":{"rooms":["s"],"except":[]}}'),
    entry(uid="u", nsp="/", type="4", data='{"rooms":["r"]}'),
    entry(uid="u", nsp="/", type="6", data='{"close":true}'),
    entry(uid="u", nsp="/", type="3", data='{"packet":{"data":' + "[" * 5000),
    entry(uid="u", nsp="/", type="3", data=base64.b64encode(b"\x91" * 5000)),
]  # fmt: skip


@pytest.mark.parametrize("fields", POISON)
def test_poison_is_a_result(fields: Any) -> None:
    message = wire.decode_entry(fields)
    assert isinstance(message, wire.Malformed) or isinstance(message.body(), wire.Malformed)


@pytest.mark.parametrize(
    "inside", ['{"not":"a list"}', "[]", "[5]", "[NaN]", '["e",NaN]', "7", '["e","\udcff"]']
)
def test_poisoned_arguments_are_a_result(inside: str) -> None:
    data = f'{{"packet":{{"type":2,"data":{inside}}},"opts":{{"rooms":[],"except":[]}}}}'
    message = wire.decode_entry(
        entry(uid="u", nsp="/", type="3", data=data.encode("utf-8", "surrogateescape"))
    )
    assert isinstance(message, wire.Message)
    body = message.body()
    assert isinstance(body, wire.Malformed) or isinstance(body.event(), wire.Malformed)


def test_a_request_id_of_nil_is_no_request_id() -> None:
    body = body_of(
        ["uid", "u", "nsp", "/", "type", "3", "data", SEEN_ON_NODE.replace("}}", '},"requestId":null}')]
    )
    assert body.requestId is None


def test_text_that_is_no_utf8() -> None:
    lone = "a\ud800b"
    assert body_of(wire.encode_entry("u", "/", 3, wire.broadcast("e", [lone], wire.opts()))).event() == [
        "e",
        "a�b",
    ]
    assert body_of(wire.encode_entry("u", "/", 3, wire.broadcast("e", [lone, b""], wire.opts()))).event() == [
        "e",
        "a�b",
        b"",
    ]
    escaped = SEEN_ON_NODE.replace('"r",1', '"r","a\\ud800b"')
    assert body_of(["uid", "u", "nsp", "/", "type", "3", "data", escaped]).event() == ["r", "a�b"]


def test_what_cannot_be_sent_is_said_to_the_caller() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for bad in (object(), {1, 2}, nested, 10**400):
        with pytest.raises((TypeError, ValueError)):
            wire.encode_entry("u", "/", 3, wire.broadcast("e", [bad], wire.opts()))
        with pytest.raises((TypeError, ValueError)):
            wire.encode_payload("u", "/", 3, wire.broadcast("e", [bad], wire.opts()))


def test_numbers_by_the_rules_of_javascript() -> None:
    data = wire.broadcast("e", [2**70, float("nan"), {1: 2}], wire.opts())
    assert json.loads(wire.encode_data(data))["packet"]["data"] == ["e", float(2**70), None, {"1": 2}]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def has_binary(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_binary, value.values()))
    return isinstance(value, bytes) or (isinstance(value, list) and any(map(has_binary, value)))


def finite(value: Any) -> Any:
    """Infinity is null in JSON."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


@given(
    st.text(), st.lists(VALUES, max_size=4), st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3)
)
def test_round_trip(event: str, args: list[Any], rooms: list[str], except_: list[str]) -> None:
    data = wire.broadcast(event, args, wire.opts(rooms, except_))
    published = wire.decode_payload(wire.encode_payload("u", "/", 3, data))
    assert isinstance(published, wire.Message)
    expected = [event, *args] if has_binary(args) else finite([event, *args])
    for body, want in (
        (body_of(wire.encode_entry("u", "/", 3, data)), expected),
        (published.body(), [event, *args]),
    ):
        assert isinstance(body, wire.Broadcast)
        assert body.event() == want
        assert (body.opts.room_names, body.opts.except_names) == (rooms, except_)


@given(st.lists(st.binary(), max_size=10))
def test_any_entry_is_survived(fields: list[bytes]) -> None:
    message = wire.decode_entry(fields)
    assert isinstance(message, (wire.Message, wire.Malformed))


@given(st.integers(-1, 14), st.binary() | VALUES.map(lambda v: ormsgpack.packb(v)), st.booleans())
def test_any_data_is_survived(number: int, data: bytes, packed: bool) -> None:
    body = wire.Message("u", "/", number, data, packed).body()
    if isinstance(body, wire.Broadcast):
        body.event()


@given(st.binary() | VALUES.map(lambda v: ormsgpack.packb(v)))
def test_any_payload_is_survived(payload: bytes) -> None:
    message = wire.decode_payload(payload)
    if isinstance(message, wire.Message):
        message.body()


@given(st.text(st.characters(exclude_categories=[])))
def test_the_hash_is_32_bit(namespace: str) -> None:
    assert -(2**31) <= wire.namespace_hash(namespace) < 2**31
