"""The person's name and address from their own git settings, for commits in the sandbox. Nothing else of these is read.

The files are those that git reads, in its order. The settings of the workspace, which may be hostile, do not count, nor
files that the person's include.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from belljar.options import AUTHOR
from belljar.runs_later import git_settings

LONGEST = 1 << 20


def mine() -> str:
    """`NAME <EMAIL>`; empty if git knows none of the two, or they are odd."""
    found: dict[str, str] = {}
    for file in _files():
        with suppress(OSError):
            content = (
                file.read_bytes()
                if file.is_file() and file.stat().st_size <= LONGEST
                else b""
            )
            values = {
                key: git_settings.lookup(content, "user", key)
                for key in ("name", "email")
            }
            found |= {
                key: re.sub(r'\\([\\"])', r"\1", value)
                for key, value in values.items()
                if value
            }
    author = f"{found.get('name')} <{found.get('email')}>"
    return author if len(found) == 2 and AUTHOR.fullmatch(author) else ""


def _files() -> list[Path]:
    if named := os.environ.get("GIT_CONFIG_GLOBAL"):
        return [Path(named)]
    with suppress(RuntimeError):  # no home
        home = Path.home()
        settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return [settings / "git" / "config", home / ".gitconfig"]
    return []
