"""Sockets of this replica: who may connect, what they send, who gets what.

Here: Engine.IO and Socket.IO at the edge, the handshake, events from packet to call, recipients, presence. Not here:
the life of a call (``rpc``), other replicas (``cluster``), HTTP routes (``http``).
"""
