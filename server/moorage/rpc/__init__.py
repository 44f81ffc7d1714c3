"""Calls from one socket to another, wherever the other is.

Here: the life of a call, who serves a method, who is gone. Not here: Redis, python-socketio, HTTP; they are reached
through the callables that the composer hands in.
"""
