"""Where replicas live, behind one interface: ``local`` (processes of this machine).

This package imports nothing by itself: the front and the warm parent take small parts of it.
"""
