"""Bring a system onto a cluster: start minikube if asked for, build and load images, apply CRD, operator and sample.

:mod:`.commands` holds the exact commands of minikube, kind, docker and the test cluster; nothing else spells one.
"""
