"""A sandbox from launch to destruction: its container, its run directory and the proof that its walls stand.

May import: engines, images, link, workspace and what is below them.
"""
