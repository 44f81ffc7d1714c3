"""HTTP routes: what comes in is checked here, what is done is done below, errors become statuses.

Here: routes, their bodies, the answer to ``/ready``. Not here: rules of accounts, storage or sockets; those come
in through :class:`~moorage.http.context.HttpContext`. :func:`~moorage.http.api.build_api` puts it together.
"""
