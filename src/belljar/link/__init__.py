"""The byte stream between the host and a sandbox's init: frames, transports and the commands spoken over them.

May import: errors only.
"""
