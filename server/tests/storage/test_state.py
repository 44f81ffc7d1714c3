"""One behaviour, two implementations: every test here runs over memory and over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.storage.state import PAGE_MAX_BYTES, State, plain
from moorage.storage.state_memory import MemoryState
from moorage.storage.state_redis import RedisState


@pytest.fixture(params=["memory", "redis"])
async def state(request: pytest.FixtureRequest) -> AsyncIterator[State]:
    if request.param == "memory":
        made: State = MemoryState()
    else:
        made = RedisState(request.getfixturevalue("valkey").url, name="test")
    await made.start()
    yield made
    await made.stop()


async def test_one_session_per_account_and_tag(state: State) -> None:
    made = await asyncio.gather(*(state.create_session("a", "t", {"n": n}) for n in range(20)))
    assert sum(created for _, created in made) == 1
    assert len({session.id for session, _ in made}) == 1
    assert len({str(session.metadata) for session, _ in made}) == 1
    other, created = await state.create_session("b", "t", None)
    assert created
    assert other.id != made[0][0].id


async def test_session_numbers_are_dense_and_the_list_is_newest_first(state: State) -> None:
    await asyncio.gather(*(state.create_session("a", f"t{n}", None) for n in range(10)))
    sessions = await state.list_sessions("a")
    assert [session.seq for session in sessions] == list(range(10, 0, -1))
    await state.delete_session("a", sessions[0].id)
    again, created = await state.create_session("a", sessions[0].tag, None)
    assert created
    assert again.seq == 11
    assert again.id != sessions[0].id
    assert [s.seq for s in await state.list_sessions("a")] == [11, *range(9, 0, -1)]
    assert await state.list_sessions("nobody") == []


async def test_a_session_reads_as_it_was_made(state: State) -> None:
    metadata = {"name": "ü\u2028🛶", "list": [1, 2.5, None, True, {"": []}]}
    made, _ = await state.create_session("a+/=", 'tag "x"\n', metadata)
    assert made.metadata == metadata
    assert made.active is True
    assert made.created_at == made.updated_at
    assert await state.get_session("a+/=", made.id) == made
    assert made.as_json() == {
        "id": made.id, "tag": 'tag "x"\n', "seq": 1, "metadata": metadata, "active": True,
        "createdAt": made.created_at, "updatedAt": made.created_at,
    }  # fmt: skip


async def test_another_accounts_session_is_unknown(state: State) -> None:
    mine, _ = await state.create_session("a", "t", None)
    await state.add_message("a", mine.id, "hello", None)
    for account, session_id in (("b", mine.id), ("a", "unknown"), ("", mine.id), ("a", "")):
        assert await state.get_session(account, session_id) is None
        assert await state.add_message(account, session_id, "x", "l") is None
        assert await state.list_messages(account, session_id, 0, 10) is None
        assert await state.set_active(account, session_id, False, 1) is False
        assert await state.delete_session(account, session_id) is False
    page = await state.list_messages("a", mine.id, 0, 10)
    assert page is not None
    assert [message.content for message in page[0]] == ["hello"]


async def test_messages_are_dense_and_in_pages(state: State) -> None:
    session, _ = await state.create_session("a", "t", None)
    await asyncio.gather(*(state.add_message("a", session.id, {"n": n}, None) for n in range(7)))
    seen: list[int] = []
    more = True
    while more:
        page = await state.list_messages("a", session.id, len(seen), 3)
        assert page is not None
        seen += [message.seq for message in page[0]]
        more = page[1]
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert await state.list_messages("a", session.id, 7, 3) == ([], False)
    assert await state.list_messages("a", session.id, 10**15, 3) == ([], False)


async def test_the_same_local_id_is_one_message(state: State) -> None:
    session, _ = await state.create_session("a", "t", None)
    other, _ = await state.create_session("a", "u", None)
    added = await asyncio.gather(*(state.add_message("a", session.id, n, "same") for n in range(10)))
    assert sum(created for _, created in filter(None, added)) == 1
    assert len({message.id for message, _ in filter(None, added)}) == 1
    page = await state.list_messages("a", session.id, 0, 10)
    assert page is not None
    assert len(page[0]) == 1
    elsewhere = await state.add_message("a", other.id, "x", "same")
    assert elsewhere is not None
    assert elsewhere[1]
    empty = await state.add_message("a", session.id, "x", "")
    again = await state.add_message("a", session.id, "y", "")
    assert empty is not None
    assert again is not None
    assert (empty[0].id, again[1]) == (again[0].id, False)


async def test_a_repeated_message_knows_its_update(state: State) -> None:
    session, _ = await state.create_session("a", "t", None)
    first = await state.add_message("a", session.id, "x", "l")
    assert first is not None
    assert first[0].update_seq is None
    await state.set_update_seq("a", session.id, first[0], 42)
    again = await state.add_message("a", session.id, "x", "l")
    assert again is not None
    assert (again[0].update_seq, again[0].id, again[1]) == (42, first[0].id, False)
    await state.delete_session("a", session.id)
    await state.set_update_seq("a", session.id, first[0], 43)
    assert await state.list_sessions("a") == []


async def test_delete_removes_the_messages(state: State) -> None:
    session, _ = await state.create_session("a", "t", None)
    await state.add_message("a", session.id, "x", "l")
    assert await state.delete_session("a", session.id) is True
    assert await state.delete_session("a", session.id) is False
    assert await state.list_messages("a", session.id, 0, 10) is None
    assert await state.get_session("a", session.id) is None


async def test_activity_never_goes_back_in_time(state: State) -> None:
    session, _ = await state.create_session("a", "t", None)
    assert await state.set_active("a", session.id, False, 2000) is True
    assert await state.set_active("a", session.id, True, 1000) is False
    read = await state.get_session("a", session.id)
    assert read is not None
    assert read.active is False
    assert await state.set_active("a", session.id, True, 2000) is True
    read = await state.get_session("a", session.id)
    assert read is not None
    assert read.active is True
    assert read.updated_at >= read.created_at


async def test_a_page_is_bounded_in_bytes(state: State) -> None:
    session, _ = await state.create_session("a", "t", None)
    size = PAGE_MAX_BYTES // 2 - 1000
    for _ in range(3):
        await state.add_message("a", session.id, "x" * size, None)
    page = await state.list_messages("a", session.id, 0, 1000)
    assert page is not None
    assert ([message.seq for message in page[0]], page[1]) == ([1, 2], True)
    await state.add_message("a", session.id, "x" * (PAGE_MAX_BYTES + 10), None)
    page = await state.list_messages("a", session.id, 3, 1000)
    assert page is not None
    assert ([message.seq for message in page[0]], page[1]) == ([4], False)


async def test_what_was_stored_is_not_changed_by_its_giver(state: State) -> None:
    metadata: dict[str, Any] = {"n": 1}
    session, _ = await state.create_session("a", "t", metadata)
    metadata["n"] = 2
    read = await state.get_session("a", session.id)
    assert read is not None
    assert read.metadata == {"n": 1}


texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner),
    max_leaves=10,
)


@given(content=json_values, local_id=st.none() | texts)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_json_comes_back(state: State, content: Any, local_id: str | None) -> None:
    session, _ = await state.create_session("fuzz", "t", content)
    added = await state.add_message("fuzz", session.id, content, local_id)
    assert added is not None
    page = await state.list_messages("fuzz", session.id, added[0].seq - 1, 1)
    assert page is not None
    message = page[0][0]
    assert (message.id, message.seq, message.local_id) == (added[0].id, added[0].seq, local_id)
    if added[1]:
        assert message.content == content


@pytest.mark.parametrize("value", [b"x", "\ud800", 2**70, {1: 2}, object()])
async def test_what_is_no_json_is_refused(state: State, value: Any) -> None:
    with pytest.raises(ValueError, match="not representable"):
        await state.create_session("a", "t", value)
    session, _ = await state.create_session("a", "t", None)
    with pytest.raises(ValueError, match="not representable"):
        await state.add_message("a", session.id, value, None)


def test_deep_nesting_is_refused_and_nan_is_null() -> None:
    deep: Any = None
    for _ in range(500):
        deep = [deep]
    with pytest.raises(ValueError, match="not representable"):
        plain(deep)
    assert plain([float("nan"), float("inf")]) == b"[null,null]"
