"""Diffs in the usual format, which git itself can apply."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.staged.conftest import Stage

from belljar.staged import diff
from belljar.staged.apply import apply


def text(stage: Stage) -> str:
    with stage.area.layers() as layers:
        return diff.unified(layers, layers.changes())


def test_a_changed_line_is_shown_as_one_hunk(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("one\n2\nthree\n")
    assert text(stage) == (
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    )


def test_changes_in_the_git_directory_are_only_counted(stage: Stage) -> None:
    (stage.host / ".git").mkdir()
    (stage.merged / ".git" / "HEAD").write_text("ref")
    assert text(stage) == "diff --git a/.git b/.git\n# +1 in .git\n"


def test_new_deleted_mode_binary_and_missing_newline_are_shown(stage: Stage) -> None:
    (stage.merged / "new").write_text("n")
    (stage.merged / "b.txt").unlink()
    (stage.merged / "a.txt").chmod(0o755)
    (stage.merged / "bin").write_bytes(b"\0")
    os.mkfifo(stage.merged / "fifo")
    found = text(stage)
    assert (
        "new file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n\\ No newline at end of file\n"
        in found
    )
    assert (
        "deleted file mode 100644\n--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
        in found
    )
    assert "old mode 100644\nnew mode 100755\n" in found
    assert "Binary files a/bin and b/bin differ" in found
    assert "# a FIFO: cannot be applied" in found


@pytest.mark.skipif(
    shutil.which("git") is None, reason="git is not installed: nobody to take the patch"
)
def test_git_apply_accepts_the_diff(stage: Stage, tmp_path: Path) -> None:
    (stage.merged / "a.txt").write_text("zero\none\nthree\nfour")
    (stage.merged / "dir" / "c.txt").unlink()
    (stage.merged / 'odd "name"\n').write_text("x\n")
    (stage.merged / "link").unlink()
    (stage.merged / "link").symlink_to("b.txt")
    copy = tmp_path / "copy"
    shutil.copytree(stage.host, copy, symlinks=True)
    (tmp_path / "p").write_text(text(stage))
    subprocess.run(["git", "apply", str(tmp_path / "p")], cwd=copy, check=True)
    assert (copy / "a.txt").read_text() == "zero\none\nthree\nfour"
    assert (copy / 'odd "name"\n').read_text() == "x\n"
    assert os.readlink(copy / "link") == "b.txt"
    assert not (copy / "dir" / "c.txt").exists()


def test_single_hunks_can_be_applied(stage: Stage) -> None:
    lines = [f"{n}\n" for n in range(40)]
    (stage.host / "many.txt").write_text("".join(lines))
    os.sync()
    lines[2], lines[30] = "two\n", "thirty\n"
    (stage.merged / "many.txt").write_text("".join(lines))
    with stage.area.layers() as layers:
        change = next(c for c in layers.changes() if c.path == "many.txt")
        sides = diff.text_sides(layers, change)
    assert sides
    found = diff.hunks(sides)
    assert len(found) == 2
    apply(
        stage.area,
        ["many.txt"],
        contents={"many.txt": diff.with_hunks(sides, found[1:])},
        force=True,
    )
    assert (stage.host / "many.txt").read_text().splitlines()[2] == "2"
    assert (stage.host / "many.txt").read_text().splitlines()[30] == "thirty"
    assert text(stage).count("@@ -") == 1
