"""Explains known failures, recognised by a program's output, and what to do about them."""

from __future__ import annotations

import re

AGAIN = "run the same command again: it goes on where it stopped"

KNOWN = [
    (r"No space left on device|ENOSPC", "the disk is full", "make room, then run the same command again"),
    (r"Read-only file system", "the file system is read-only", "choose a place to write with VENV=/some/directory"),
    (r"DO NOT MATCH THE HASHES|do not match the hashes", "a package is not the one that was locked",
     "the download was damaged or the index serves other files: try again, and look at the log if it stays"),
    (r"Temporary failure in name resolution|Name or service not known|Could not resolve|Temporary failure resolving",
     "no name could be resolved: is the network there?", AGAIN),
    (r"Network is unreachable|No route to host|Connection refused|Failed to establish a new connection|"
     r"Connection reset|Connection aborted|ProtocolError|Could not connect|Failed to fetch|connection broken by|"
     r"IncompleteRead|Cannot connect to proxy",
     "the network or the package index cannot be reached", AGAIN),
    (r"timed out|Read timed out|Connection timed out", "the network is too slow or gone", AGAIN),
    (r"CERTIFICATE_VERIFY_FAILED|certificate verify failed", "the index's certificate is not trusted here",
     "install ca-certificates, or name your own bundle in pip's setting `cert`"),
    (r"No matching distribution|Could not find a version", "the index has no fitting wheel of a locked package",
     "use Python 3.11 to 3.14 on Linux x86_64 or aarch64 (PYTHON=…); `make lock` renews the versions"),
    (r"Could not get lock|Unable to acquire the dpkg", "another package manager is at work",
     "wait for it to end, then run the same command again"),
    (r"Unable to locate package|has no installation candidate", "a Debian package was not found",
     "look at this machine's apt sources"),
    (r"[Pp]ermission denied|EACCES", "permission denied", "run it as the owner of this directory, or choose VENV="),
]  # fmt: skip


def explain(output: str) -> tuple[str, str]:
    for pattern, reason, remedy in KNOWN:
        if re.search(pattern, output):
            return reason, remedy
    words = [line.strip() for line in output.splitlines() if line.strip()]
    return (words[-1] if words else "it printed nothing"), "look at the log"
