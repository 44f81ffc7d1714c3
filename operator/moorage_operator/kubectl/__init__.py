"""``kubectl moorage``: what ``kubectl get rts`` cannot say in a line.

Lives here: reading a cluster for people, evicting one pod, collecting a report. It changes nothing but by the
eviction that was asked for. Not here: anything that the operator does. ``transport`` alone knows a Kubernetes
client, ``cluster`` alone knows paths; everything else turns values into text.
"""
