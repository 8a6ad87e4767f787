"""Where things are inside every sandbox, and what machines are called."""

from __future__ import annotations

WORKSPACE = "/workspace"
HOME = "/home/sandbox"
PRIVATE = "/.belljar"
"""How the directory of our own files begins; the rest of its name is random."""
HOSTNAME = "sandbox"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""What engines and images call a machine, and what its kernel does (`uname -m`)."""
