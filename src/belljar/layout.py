"""Where things are inside every sandbox."""

from __future__ import annotations

WORKSPACE = "/workspace"
HOME = "/home/sandbox"
PRIVATE = "/.belljar"
"""How the directory of our own files begins; the rest of its name is random."""
HOSTNAME = "sandbox"
