"""The Tab key in safe mode."""

from __future__ import annotations

from pathlib import Path

from tests.surfaces.cli.test_safe_mode import terminal as terminal
from tests.surfaces.real_terminal import Terminal


def test_tab_completes_files_programs_and_branches(
    terminal: Terminal, workspace: Path
) -> None:
    (workspace / "a long name.txt").write_text("found me\n")
    (workspace / "directory").mkdir()
    (workspace / "directory" / "file").write_text("deep\n")
    complete(terminal, "cat a", "name.txt'")
    terminal.until("found me")
    complete(terminal, "cat dir", "ectory/", "f", "ile")
    terminal.until("deep")
    complete(terminal, "echo x; printen", "v", " TERM")
    terminal.until("xterm\r\n")
    commit = "git -c user.name=a -c user.email=b commit -qm x --allow-empty"
    terminal.line(f"git init -q && {commit} && git branch some-branch")
    terminal.until("exit 0")
    complete(terminal, "git checkout -q some", "-branch")
    terminal.until("exit 0")
    terminal.until("(some-branch)")
    complete(terminal, "git checkout --orph", "an=", "x")
    terminal.until("exit 0")
    complete(terminal, ":qu", "it")
    assert terminal.status() == 0


def complete(terminal: Terminal, *typed_and_shown: str) -> None:
    """For each part: type it, press Tab and wait until the completion is shown. Then press Enter."""
    terminal.until("$")
    for index, text in enumerate(typed_and_shown):
        if index % 2:
            terminal.until(text)
        else:
            terminal.type(text + ("\t" if index + 1 < len(typed_and_shown) else ""))
    terminal.type("\r")
