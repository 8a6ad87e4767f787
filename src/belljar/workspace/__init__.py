"""The caller's directory: pinned, id-mapped into the sandbox, and looked at from the host with care.

May import: layout, limits and errors only.
"""
