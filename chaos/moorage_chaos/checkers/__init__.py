"""Judges: each reads a history, and nothing else, and returns promises.

Here live pure functions of a history, a promise a file. No clock, no network, no driver. A checker that
raises has judged nothing: its promise is ``unknown``.
"""

from moorage_chaos.checkers.base import Checker, judge

__all__ = ["Checker", "judge"]
