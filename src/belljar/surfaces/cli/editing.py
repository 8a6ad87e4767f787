"""Lets a person edit a text in their own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from belljar.errors import UsageError


def edited(text: bytes, name: str) -> bytes:
    """What is in the file when the editor ends. `name`: so that the editor knows the language; nothing else of it is
    used, and the file is in a directory of its own, with no settings that an editor might read."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with TemporaryDirectory(prefix="belljar-edit-") as directory:
        file = (
            Path(directory)
            / f"edit{Path(name).suffix if Path(name).suffix.isprintable() else ''}"
        )
        file.write_bytes(text)
        try:
            done = subprocess.run([*shlex.split(editor), str(file)], check=False)
        except OSError as error:
            raise UsageError(
                f"the editor {editor!r} cannot be started: {error.strerror}; set EDITOR"
            ) from error
        if done.returncode:
            raise UsageError(
                f"the editor {editor!r} ended with status {done.returncode}"
            )
        return file.read_bytes()
