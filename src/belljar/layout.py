"""Where things are inside every sandbox."""

from __future__ import annotations

WORKSPACE = "/workspace"
HOME = "/home/sandbox"
INIT = "/.belljar/init"
LINK = "/.belljar/link"
HOSTNAME = "sandbox"
