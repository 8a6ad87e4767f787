"""Paths inside every sandbox, and the names of machine architectures."""

from __future__ import annotations

WORKSPACE = "/workspace"
HOME = "/home/sandbox"
PRIVATE = "/.belljar"
"""Prefix of the directory that holds our own files; the rest of its name is random."""
HOSTNAME = "sandbox"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The name that engines and images use → the name that the kernel uses (`uname -m`)."""
