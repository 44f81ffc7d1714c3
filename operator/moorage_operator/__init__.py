"""The operator: one ``RealtimeServer`` object becomes a running server with its Redis.

Level-triggered: handlers only wake a reconcile; one pass observes, plans, applies and tells. ``resource``,
``desired`` and ``plan`` are values without I/O; ``api`` is the only place with a Kubernetes client, ``handlers``
and ``process`` the only ones with kopf. Nothing of the server's package is imported.
"""

__version__ = "0.1.0"
