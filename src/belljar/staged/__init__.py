"""Staged workspaces: commands see and change the workspace, but the host's files change only when someone applies.

The sandbox gets an overlay: the workspace below, an area of ours above. The changes are read from the area (never from
the whole tree), shown, applied file by file, or discarded.

Nothing here runs a program.
"""
