"""One sandbox's working life: sessions, the pool, requests and results, background and persistent shells.

May import: sandbox, link, workspace, policy, audit and what is below them; never tools or surfaces.
"""
