"""Who a client is: sign-in by key, tokens, and the names accounts may have.

Here: checks and values. Not here: routes, sockets, storage; nothing in this package knows of a request.
A token is looked at when a request or a handshake arrives. A socket that is connected stays connected when
its token expires; the next handshake with that token is refused.
"""
