"""`belljar conformance URL`: whether a server behaves as the contract of `/v1` says.

A check is a function that asks the server and says what it expects (checks_*.py); `probe.py` has the words for that,
and `judging.py` runs them. It speaks HTTP only, so it judges any implementation.

May import: nothing of Belljar but its errors; the server is somebody else's.
"""
