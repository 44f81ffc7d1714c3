"""Socket.IO packets: what goes out is what python-socketio reads, and junk is Malformed or nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from engineio.payload import Payload
from hypothesis import example, given
from hypothesis import strategies as st
from socketio.packet import Packet as TheirPacket
from websockets.frames import Frame
from websockets.streams import StreamReader

from moorage.cluster import packets
from moorage.cluster.packets import ACK, BINARY_ACK, BINARY_EVENT, EVENT, Malformed, decode, encode, frame

plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters())
    | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
values = st.recursive(
    plain | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4).filter(lambda key: key != "_placeholder"), inner, max_size=3)
    ),
    max_leaves=8,
)
namespaces = st.sampled_from(["/", "/admin", "/a-1/b"])
ids = st.none() | st.integers(0, 10**15)


def frames(wire: bytes) -> list[tuple[int, bytes]]:
    """WebSocket frames by the websockets library."""
    reader = StreamReader()
    reader.feed_data(wire)
    found = []
    while reader.buffer:
        parser = Frame.parse(reader.read_exact, mask=False)
        try:
            next(parser)
        except StopIteration as end:
            found.append((int(end.value.opcode), bytes(end.value.data)))
    return found


@given(st.sampled_from([EVENT, ACK]), namespaces, ids, st.lists(values, max_size=4))
def test_what_we_encode_is_what_they_read(
    kind: int, namespace: str, ack_id: int | None, args: list[Any]
) -> None:
    data = ["event", *args] if kind == EVENT else args
    packet = encode(kind, namespace, ack_id, data)
    sent = frames(packet.wire)
    assert sent == [(1, b"4" + packet.text), *((2, part) for part in packet.attachments)]
    theirs = TheirPacket(encoded_packet=packet.text.decode())
    assert theirs.packet_type == (kind + 3 if packet.attachments else kind)
    assert (theirs.namespace or "/", theirs.id) == (namespace, ack_id)
    for part in packet.attachments:
        theirs.add_attachment(part)
    assert theirs.data == data
    polled = Payload(encoded_payload=Payload(packets=packet.polling).encode())
    assert polled.packets[0].data == packet.text.decode()
    assert [part.data for part in polled.packets[1:]] == list(packet.attachments)


@given(st.sampled_from([EVENT, ACK]), namespaces, st.integers(0, 10**15), st.lists(values, max_size=4))
def test_what_they_encode_is_what_we_read(kind: int, namespace: str, ack_id: int, args: list[Any]) -> None:
    data = ["event", *args] if kind == EVENT else args
    sent = TheirPacket(kind, data, namespace, ack_id).encode()
    text, attachments = (sent[0], sent[1:]) if isinstance(sent, list) else (sent, [])
    packet = decode(b"4" + text.encode(), 1)
    assert packet.attachments == len(attachments)
    assert packet.type in ((BINARY_EVENT, BINARY_ACK) if attachments else (EVENT, ACK))
    assert (packet.namespace, packet.id) == (namespace, ack_id)
    assert same(packets.with_attachments(packet.data, attachments), data)


def same(ours: Any, theirs: Any) -> bool:
    """Equal but for integers over 64 bits, which come in as floats, as in JavaScript."""
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    return ours == theirs or (isinstance(ours, float) and math.isclose(ours, theirs))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, str(2**70)),
        ("\ud800", '"\\ud800"'),
        ({1: 2, None: 3}, '{"1":2,"null":3}'),
        ([2**70, math.nan, math.inf], f"[{2**70},null,null]"),
        (math.nan, "null"),
        ([2**70, b"\x00"], f'[{2**70},{{"_placeholder":true,"num":0}}]'),
        ((1, (2,)), "[1,[2]]"),
    ],
)
def test_what_orjson_refuses(value: Any, text: str) -> None:
    assert encode(EVENT, "/", None, ["e", value]).text.endswith(f'["e",{text}]'.encode())


def test_what_json_cannot_hold_is_an_error() -> None:
    for wrong in (object(), {1, 2}, {(1,): 2}):
        with pytest.raises(TypeError):
            encode(EVENT, "/", None, ["e", wrong])
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        encode(EVENT, "/", None, ["e", deep])
    with pytest.raises(ValueError, match="binary"):
        encode(packets.CONNECT, "/", None, {"x": b""})


def test_lone_surrogates_come_in() -> None:
    assert decode(b'2["e","\\ud800"]').data == ["e", "\ud800"]


@given(st.integers(0, 2), st.integers(1, 2))
def test_frame_sizes(size: int, opcode: int) -> None:
    for length in ((0, 125, 126), (127, 65535, 65536), (65537, 70000, 1))[size]:
        payload = bytes(length)
        assert frames(frame(opcode, payload)) == [(opcode, payload)]


JUNK = [
    b"", b"7[]", b"x", b"2", b"2[]", b"2{}", b'2"e"', b'2["e"', b'2["e"]]', b"2[1]", b"2[null]", b'2["e",NaN]',
    b'2["connect",{}]', b'2["disconnect"]', b"3[]", b"31", b"31{}", b"0[]", b'0"x"', b"1[]", b"4", b'4{"message":1}',
    b'5["e"]', b'21-["e"]', b'599999-["e"]', b'565-["e"]', b'2/x["e"]', b'2\xff["e"]', b'2["\xff"]',
    b'2/\xff,["e"]', b'2' + b"9" * 40 + b'["e"]', b'5-["e"]', b'51-', b'2["e",' + b"[" * 300 + b"]" * 300 + b"]",
    b"2" + b"[" * 100_000, b'2["e",' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"]",
    b'2["\\ud800",' + b"[" * 2000 + b"]" * 2000 + b"]", b'2["\\ud800",NaN]',
]  # fmt: skip


@pytest.mark.parametrize("raw", JUNK, ids=lambda raw: repr(raw[:12]))
def test_junk_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode(raw)


@given(st.binary(max_size=40) | st.from_regex(rb"\A[0-6]([0-9]*-)?(/[a-z]*,)?[0-9]*[\[\]{}\"ae,:0-9\\u]*\Z"))
@example(b"2")
def test_decode_raises_nothing_else(raw: bytes) -> None:
    try:
        packet = decode(raw)
    except Malformed:
        return
    if packet.type in (EVENT, BINARY_EVENT):
        assert type(packet.data[0]) is str
    again = encode(
        packet.type - 3 if packet.type >= BINARY_EVENT else packet.type,
        packet.namespace,
        packet.id,
        packet.data,
    )
    assert decode(again.text).data == packet.data


@given(json_values)
def test_placeholders_are_checked(value: Any) -> None:
    try:
        packets.with_attachments(value, [b"a"])
    except Malformed as error:
        assert str(error) == "placeholder"  # noqa: PT017
    for number in (1, -1, True, "0", None, 0.0):
        with pytest.raises(Malformed):
            packets.with_attachments(["e", {"_placeholder": True, "num": number}], [b"a"])


def test_deep_input_can_be_sent_on() -> None:
    packet = decode(b'2["e",' + b"[" * 250 + b"]" * 250 + b"]")
    assert json.loads(encode(ACK, "/", 1, [{"ok": True, "result": packet.data[1]}]).text[2:])
