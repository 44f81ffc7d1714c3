"""What runs on a node, in the privileged helper pod: signals to the processes of a pod, rules in its network namespace.

Standard library only: the helper's image holds this folder, Python, iptables, iproute2 and conntrack, nothing else.
The harness speaks to it over ``exec`` (:mod:`moorage_chaos.drivers.kubernetes_nodes`); nothing listens.
"""
