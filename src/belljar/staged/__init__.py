"""Staged workspaces: commands see and change the workspace, the host's files stay as they are until someone applies.

The sandbox gets an overlay: the workspace below, an area of our own above. What differs is read off the area (never
the whole tree), shown, applied file by file, or discarded.

May import: workspace, errors, layout. Nothing here runs a program.
"""
