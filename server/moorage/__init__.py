"""A Socket.IO server for many replicas: RPC to daemons through rooms, broadcast, presence, sessions.

``moorage.client`` holds the Python clients and imports nothing of the server; ``moorage.cluster`` makes any
python-socketio server a member of a cluster over Redis Streams. docs/architecture.md says where everything lives.
"""
