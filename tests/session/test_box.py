"""Every public name of a session is declared. Private names begin with an underscore."""

from __future__ import annotations

from pathlib import Path

from belljar import Session, sync

FOR_TOOLS_AND_SURFACES = {
    "adopt", "allow", "ask", "audit", "copy_out", "env", "image", "init_tools", "network", "of", "options", "resolve_cwd",
    "sandbox", "stay",
}  # fmt: skip
"""Used only by Belljar's own tools and surfaces. All other public names are in `belljar.sync` too."""


def test_every_public_name_of_a_session_is_declared(tmp_path: Path) -> None:
    names = {name for name in dir(Session(tmp_path)) if not name.startswith("_")}
    assert names == {name for name in dir(sync.Session) if not name.startswith("_")} | FOR_TOOLS_AND_SURFACES
