"""`Session` is a `Box`, and every public name of it is declared. Private names begin with an underscore."""

from __future__ import annotations

import inspect
from pathlib import Path

from belljar import Session, Shell, sync
from belljar.session.box import Box, BoxFiles, BoxShell, Watched
from belljar.session.files import Files
from belljar.session.watched_run import Run

FOR_TOOLS_AND_SURFACES = {
    *(
        "adopt",
        "allow",
        "ask",
        "audit",
        "copy_out",
        "env",
        "held",
        "hold",
        "image",
        "init_tools",
        "named_shell",
    ),
    *("network", "of", "options", "ping", "resolve_cwd", "sandbox", "stay", "why_lost"),
}
"""Used only by Belljar's own tools and surfaces. All other public names are in `belljar.sync` too."""


def test_every_public_name_of_a_session_is_declared(tmp_path: Path) -> None:
    names = {name for name in dir(Session(tmp_path)) if not name.startswith("_")}
    assert (
        names
        == {name for name in dir(sync.Session) if not name.startswith("_")}
        | FOR_TOOLS_AND_SURFACES
    )


def _is_a_box(
    session: Session, shell: Shell, files: Files, run: Run
) -> tuple[Box, BoxShell, BoxFiles, Watched]:
    """The type checker compares every signature."""
    return session, shell, files, run


def test_a_box_promises_nothing_that_a_session_lacks() -> None:
    for promise, kind in (
        (Box, Session),
        (BoxFiles, Files),
        (BoxShell, Shell),
        (Watched, Run),
    ):
        promised = {
            name
            for name, member in vars(promise).items()
            if inspect.isfunction(member) and name[0] != "_"
        }
        assert promised <= set(dir(kind)), promise
        for name in promised:
            is_async = inspect.iscoroutinefunction(getattr(promise, name))
            assert is_async == inspect.iscoroutinefunction(getattr(kind, name)), (
                f"{promise.__name__}.{name}"
            )
