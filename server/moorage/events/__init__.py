"""The event log of a session: appended first, then pushed; resumed by id (PROTOCOL, "Event log frames").

Here: order, ids, gaps, the breaker, replay and what a reader is. Not here: who may read (accounts, sockets, http),
what is told (tasks), and Redis itself, which is spoken to through :mod:`moorage.storage.backplane`.
:class:`~moorage.events.log.EventLog` puts it together, with a backplane or in memory, with readers or without.
"""
