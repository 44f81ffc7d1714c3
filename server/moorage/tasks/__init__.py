"""Tasks: long work inside a session, run by workers, told of by the session's event log.

Here: the queue as replicas see it, the handlers that users register, the worker that runs them, what a handler gets
in its hand. Not here: where tasks are kept (:mod:`moorage.storage.tasks`), the log (:mod:`moorage.events`), routes
and sockets.
"""
