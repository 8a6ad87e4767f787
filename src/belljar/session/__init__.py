"""Sessions: one sandbox each, and the commands, shells, files and results in it; the pool of warm sandboxes.

May import: sandbox, link, workspace, policy, audit and what is below them; never tools or surfaces.
"""
