"""What is kept outside of the process, or would be: Redis and the state of sessions and messages.

Here: connections to Redis, the backplane of the cluster, the state with its two homes. All errors of Redis end here
as :class:`moorage.errors.BackplaneError`. Not here: what a channel, a stream or a key means to the cluster.
"""
