"""A Socket.IO server for many replicas: RPC to daemons through rooms, broadcast, presence, sessions.

``moorage.client`` holds the Python clients and imports nothing of the server; ``moorage.cluster`` makes any
python-socketio server a member of a cluster over Redis Streams. docs/architecture.md says where everything lives.

Handlers of tasks use ``moorage.task``, ``Task``, ``TaskFailed``, ``HandBack`` and ``QuestionTimeout``, which are loaded
when they are first named: importing ``moorage.client`` alone stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.tasks.context import Task
    from moorage.tasks.handlers import HandBack, TaskFailed, task
    from moorage.tasks.questions import QuestionTimeout

__all__ = ["HandBack", "QuestionTimeout", "Task", "TaskFailed", "task"]

_HOMES = {"Task": "context", "QuestionTimeout": "questions"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'moorage' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"moorage.tasks.{_HOMES.get(name, 'handlers')}"), name)
