"""A sandbox from launch to destruction: its container, its run directory, and the check that its protections hold.

May import: engines, images, link, workspace and what is below them.
"""
