"""Chaos harness: kills, rolls, freezes and cuts replicas and Redis under load, and checks every promise.

What may live here: drivers (where replicas live), the front that stands for the Service, faults, load
clients, scenarios, histories, checkers, verdicts, reports. It meets the server over the wire only; the one
exception is ``mutants`` and ``warm``, which run the server's own entry point in a process of their own.
docs/chaos.md says how a row is added.
"""
