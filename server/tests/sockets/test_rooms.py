from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.accounts.names import is_account
from moorage.rpc.registry import rpc_room
from moorage.sockets import rooms
from moorage.sockets.clients import Client

accounts = st.text(min_size=1, max_size=12).filter(is_account)
ids = st.text(min_size=1, max_size=30)


def test_the_names_are_the_protocols() -> None:
    assert rooms.user("u") == "user:u"
    assert rooms.user_scoped("u") == "user:u:user-scoped"
    assert rooms.session("u", "s") == "user:u:session:s"
    assert rooms.machine("u", "m") == "user:u:machine:m"


def test_rooms_on_connecting() -> None:
    assert Client("u", "user-scoped").rooms == ("user:u", "user:u:user-scoped")
    assert Client("u", "session-scoped", session_id="s").rooms == ("user:u", "user:u:session:s")
    assert Client("u", "machine-scoped", machine_id="m").rooms == ("user:u", "user:u:machine:m")


@given(accounts, accounts, ids, ids)
def test_no_id_leads_into_a_room_of_another_account_or_kind(one: str, two: str, a: str, b: str) -> None:
    def all_rooms(account: str, key: str) -> list[str]:
        return [
            rooms.user(account),
            rooms.user_scoped(account),
            rooms.session(account, key),
            rooms.machine(account, key),
            rpc_room(account, key),
        ]

    if one != two:
        assert not set(all_rooms(one, a)) & set(all_rooms(two, b))
    assert len(set(all_rooms(one, a) + all_rooms(one, b))) == (5 if a == b else 8)
