"""Who hears what of the membership: the one place where its upward callbacks meet registry and carrier."""

from __future__ import annotations

from moorage.cluster.inboxes import GoneBy, Member
from moorage.cluster.membership import Membership
from moorage.rpc.registry import Registry
from moorage.rpc.remote import Remote


def connect(membership: Membership, registry: Registry, remote: Remote) -> None:
    """Set the callbacks. A member's registrations go before its calls end, so that no call finds it again."""

    def gone(member: Member, kind: GoneBy) -> None:
        registry.drop(member.replica)
        remote.gone(member, kind)

    registry.tell = membership.tell
    membership.snapshot = registry.snapshot
    membership.on_tell = registry.apply
    membership.on_snapshot = registry.replace
    membership.on_gone = gone
    membership.on_message = remote.received
    membership.on_relinked = remote.relinked
    membership.on_disowned = remote.disowned
    membership.on_renewed = remote.renewed
