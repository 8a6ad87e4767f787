"""The dashboard: seven pages for one person who supervises fifty agents. README.md has its parts.

It is a client of `/v1` like any other: what a page shows is what the API answers to the visitor's key.
"""
