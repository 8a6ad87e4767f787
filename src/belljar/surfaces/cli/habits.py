"""Commands and options that Docker users may type, and what to write instead."""

from __future__ import annotations

import re

COMMANDS = {
    "exec": "`belljar run --session ID CMD` runs in a session",
    "stop": "`belljar session stop ID` ends a session, `belljar kill ID` a background shell",
    "rm": "`belljar session stop ID` ends a session; nothing is left of it",
    "list": "`belljar ps` lists sessions, `belljar shells` background shells",
    "ls": "`belljar ps` lists sessions, `belljar shells` background shells",
    "status": "`belljar ps` lists sessions, `belljar doctor` checks this machine",
    "build": "`belljar images build NAME` builds an image",
    "top": "`belljar stats` shows what sessions use",
}
OPTIONS = {
    "-p": "`belljar forward ID HERE:PORT` opens a port of a session",
    "--publish": "`belljar forward ID HERE:PORT` opens a port of a session",
    "--rm": "leave it out: nothing is left of a run",
    "-d": "`belljar start --session ID CMD` runs in the background",
    "--detach": "`belljar start --session ID CMD` runs in the background",
    "--volume": "write --mount SRC:DST; it is read-only",
    "--privileged": "there is no such sandbox; --debug allows gdb and strace",
}


def is_volume(word: str) -> bool:
    """Whether a word is what Docker's `-v` takes: SRC:DST."""
    return re.fullmatch(r"[^\s:]+:/[^\s:]*(:r[ow])?", word) is not None
