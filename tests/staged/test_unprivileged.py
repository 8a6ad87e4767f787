"""A caller who is not root can stage changes too: the engine mounts the overlay, which uses user attributes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.attacks.test_unprivileged_caller import CALLER, home, python, run_as_caller

__all__ = ["home", "python"]
pytestmark = [pytest.mark.docker, pytest.mark.root]


def test_an_ordinary_user_stages_looks_applies_and_undoes(
    python: str, home: Path, base_image: str
) -> None:
    workspace = home / "workspace"
    (workspace / "dir").mkdir()
    for name in ("a.txt", "b.txt", "d.txt", "dir/c.txt"):
        (workspace / name).write_text("one\n")
    for path in workspace.rglob("*"):
        os.chown(path, CALLER, CALLER)
    script = Path(__file__).with_name("unprivileged.py").read_text()
    seen = run_as_caller(python, home, script, timeout=120)
    assert seen["ran"] == [0, f"one\ntwo\ne.txt\n{CALLER}\n", ""]
    assert seen["untouched"] == ["a.txt", "b.txt", "c.txt", "d.txt", "dir"]
    assert seen["changes"] == {
        "a.txt": "modified", "b.txt": "deleted", "d.txt": "deleted", "dir/c.txt": "deleted", "dir/e.txt": "added",
        "moved.txt": "added", "new": "added", "new/x": "added", "out": "added",
    }  # fmt: skip
    assert "+two\n" in seen["diff"]
    assert seen["twin"] == "a.txt\nb.txt\nd.txt\n"  # a FIFO is not copied
    assert (seen["discarded"], seen["d.txt"]) == (["d.txt"], "one\n")
    assert (
        seen["still"]
        == "one\ntwo\n.:\na.txt\ndir\nmoved.txt\nnew\nout\n\ndir:\ne.txt\n/etc/passwd\n"
    )
    assert seen["again"] == seen["changes"]
    assert set(seen["later"]) == {
        "b.txt",
        "d.txt",
        "dir/c.txt",
        "dir/e.txt",
        "moved.txt",
        "out",
    }
    assert seen["later_discarded"] == ["out"]
    assert set(seen["applied"]) == set(seen["later"]) - {"out"}
    assert seen["left"] == []
    assert seen["after"] == ["a.txt", "dir", "dir/e.txt", "moved.txt", "new", "new/x"]
    assert set(seen["undone"]) == set(seen["applied"])
    assert seen["mode"] & 0o111
    assert seen["remains"] == ["work"], (
        "nothing of the changes; the kernel's own directory only root can remove"
    )
    shut, before = seen["shut"], {"opened": "555", "shut": "555"}
    assert (shut["ran"], shut["before"]) == ("", before)
    assert shut["applied"] == [
        {"made": "500", "made/in": "755", "opened": "700", "shut": "555"},
        ["f", "g"],
    ]
    assert shut["undone"] == [before, ["f"]]
    assert shut["discarded"] == [
        "made",
        "made/in",
        "made/in/x",
        "opened",
        "opened/f",
        "shut/f",
        "shut/g",
    ]
    assert shut["inside"] == "555 opened\n555 shut\noneone"
    assert shut["back"] == "500 made\n700 opened\n555 shut\ntwo\ntwo\n"
