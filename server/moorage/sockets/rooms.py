"""Names of rooms. Rooms are the only truth about who is where; an account's name holds no colon, so no two
accounts share one. Those of methods are named by :func:`moorage.rpc.registry.rpc_room`."""

from __future__ import annotations


def user(account: str) -> str:
    """Every socket of the account."""
    return f"user:{account}"


def user_scoped(account: str) -> str:
    """Its user-scoped sockets: the user interfaces."""
    return f"user:{account}:user-scoped"


def session(account: str, session_id: str) -> str:
    """Its sockets scoped to that session."""
    return f"user:{account}:session:{session_id}"


def machine(account: str, machine_id: str) -> str:
    """Its sockets scoped to that machine."""
    return f"user:{account}:machine:{machine_id}"
