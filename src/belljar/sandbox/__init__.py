"""A sandbox from launch to destruction: its container, its run directory, and the check that its protections hold."""
