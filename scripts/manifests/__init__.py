"""Renders what is in k8s/ and checks it: against the schemas of Kubernetes, and against rules of our own.

There is no cluster here to try it on; what these checks do not see is listed in docs/kubernetes.md.
"""
