"""Who gets a broadcast: the four filters of the protocol, as rooms. A socket in several of them gets one
copy."""

from __future__ import annotations

from moorage.sockets import rooms

EVERYBODY = "all-user-authenticated-connections"
USER_SCOPED = "user-scoped-only"
SESSION = "all-interested-in-session"
MACHINE = "machine-scoped-only"


def rooms_for(account: str, kind: str, target: str | None = None) -> tuple[str, ...]:
    """Rooms of the filter ``kind``; ``target`` is its session or machine id.

    Only the account's own rooms, whatever ``target`` holds. Raises ValueError on an unknown kind or a missing
    target.
    """
    everyone = rooms.user_scoped(account)
    match kind:
        case "all-user-authenticated-connections":
            return (rooms.user(account),)
        case "user-scoped-only":
            return (everyone,)
        case "all-interested-in-session" if target:
            return (rooms.session(account, target), everyone)
        case "machine-scoped-only" if target:
            return (rooms.machine(account, target), everyone)
    raise ValueError("unknown filter, or without its target")
