"""The three ways to read a log: WebSocket, Server-Sent Events, Socket.IO. What they share is ``base``.

A reader knows how bytes leave and when that is too slow; what it gets and when is :mod:`moorage.events.live` and
:mod:`moorage.events.replay`. The carriers themselves come in as structural types.
"""
