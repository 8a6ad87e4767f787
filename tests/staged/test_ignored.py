"""What the project ignores is out of the way, by git's own rules."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.staged.conftest import Stage

from belljar.errors import Conflict
from belljar.staged.apply import apply
from belljar.staged.change import etag, ignored_in_words
from belljar.staged.ignored import LONGEST, Ignored, _parsed, _spec_of
from belljar.staged.review import Review
from belljar.workspace.beneath import Folder

ANCHORED = {
    ".gitignore": "/build\nws/dist\n/ws/*.tmp\n",
    ".git/info/exclude": "/private\n/ws/private\n",
}
RULES = {
    ".gitignore": "*.log\n!keep.log\n/build\ncache/\ndocs/*.html\n**/deep/x\n\\#odd\ntrailing \n",
    "sub/.gitignore": "!*.log\nown.txt\n",
    ".git/info/exclude": "private\n",
}
PATHS = [
    "a.log", "keep.log", "build/x", "sub/build/x", "cache/x", "cache", "sub/cache/y", "docs/a.html", "docs/b/a.html",
    "q/deep/x", "sub/a.log", "sub/own.txt", "own.txt", "private", "sub/private", "#odd", "trailing", "src/app.py",
    "build/.gitignore", "tracked.log", "sub/keep.log", ".gitignore",
]  # fmt: skip


def test_the_same_files_are_ignored_as_by_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for path, text in [
        *RULES.items(),
        *((path, "x") for path in PATHS if path not in RULES and path != "cache"),
    ]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "add", "-f", "tracked.log"], cwd=tmp_path, check=True)
    wanted = subprocess.run(
        ["git", "check-ignore", *PATHS],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    with Folder.at(tmp_path) as lower:

        def read(path: str) -> bytes | None:
            return (
                (tmp_path / path).read_bytes() if (tmp_path / path).is_file() else None
            )

        ignored = Ignored(lower, str(tmp_path), read)
        found = [
            path
            for path in PATHS
            if ignored.covers(
                path, is_directory=(tmp_path / path).is_dir(), exists=True
            )
        ]
    assert found == wanted
    assert "tracked.log" not in found


@pytest.mark.parametrize("place", ["", "ws"])
def test_patterns_above_a_workspace_are_anchored_where_they_are(
    tmp_path: Path, place: str
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "ws").mkdir()
    for path, text in ANCHORED.items():
        (tmp_path / path).write_text(text)
    paths = [
        "build",
        "dist",
        "a.tmp",
        "private",
        "ws/build",
        "ws/dist",
        "ws/a.tmp",
        "ws/private",
    ]
    asked = ["git", "-C", str(tmp_path / place), "check-ignore", *paths]
    wanted = subprocess.run(
        asked, check=False, capture_output=True, text=True
    ).stdout.splitlines()
    with Folder.at(tmp_path / place) as lower:
        rules = {".gitignore": ANCHORED[".gitignore"].encode()} if not place else {}
        ignored = Ignored(lower, str(tmp_path / place), rules.get)
        assert [
            path
            for path in paths
            if ignored.covers(path, is_directory=False, exists=True)
        ] == wanted
    assert len(wanted) == (5 if not place else 3)


def test_ignored_changes_are_one_line_and_are_applied_only_when_asked_for(
    stage: Stage,
) -> None:
    (stage.merged / "__pycache__").mkdir()
    (stage.merged / "__pycache__" / "a.pyc").write_bytes(b"\0" * 2048)
    (stage.merged / "a.txt").write_text("changed\n")
    review = Review(stage.area)
    assert [change.path for change in review.listed()] == ["a.txt"]
    assert ignored_in_words(review.changes()) == "1 ignored file, 2.0 KiB"
    assert "pyc" not in review.diff()
    assert "pyc" in review.diff(ignored=True)
    result = apply(stage.area)
    assert (result.paths, result.ignored) == (
        ["a.txt"],
        ["__pycache__", "__pycache__/a.pyc"],
    )
    assert not (stage.host / "__pycache__").exists()
    apply(stage.area, ["__pycache__/a.pyc"])
    assert (stage.host / "__pycache__" / "a.pyc").exists()
    (stage.merged / "b.pyc").touch()
    apply(stage.area, ignored=True)
    assert (stage.host / "b.pyc").exists()


def test_a_command_cannot_hide_its_changes_by_editing_what_is_ignored(
    stage: Stage,
) -> None:
    (stage.host / ".git").mkdir()
    (stage.host / ".gitignore").write_text("*.log\n")
    (stage.merged / ".gitignore").write_text("*\n")
    (stage.merged / "evil.py").write_text("x")
    (stage.merged / "new").mkdir()
    (stage.merged / "new" / ".gitignore").write_text("out\n")
    (stage.merged / "new" / "out").write_text("x")
    assert [change.path for change in Review(stage.area).listed()] == [
        ".gitignore", "evil.py", "new", "new/.gitignore",
    ]  # fmt: skip


def test_a_list_says_what_changed_on_the_other_side_and_how_many_lines(
    stage: Stage,
) -> None:
    (stage.merged / "a.txt").write_text("one\n2\nthree\nfour\n")
    (stage.merged / "b.txt").write_text("changed\n")
    (stage.host / "b.txt").write_text("mine\n")
    found = {change.path: change for change in Review(stage.area).listed()}
    assert (found["a.txt"].added, found["a.txt"].removed, found["a.txt"].conflict) == (
        2,
        1,
        "",
    )
    assert found["b.txt"].conflict == "changed on the host, changed in the sandbox"
    assert found["a.txt"].as_dict()["size"] == 17


@pytest.mark.parametrize("side", ["sandbox", "host", "new", "none"])
def test_an_etag_names_the_changes_with_their_contents_on_both_sides(
    stage: Stage, side: str
) -> None:
    (stage.merged / "a.txt").write_text("changed\n")
    (stage.merged / "large").write_bytes(b"x" * (2 << 20))
    review = Review(stage.area)
    seen = etag(review.changes())
    assert etag(review.changes()) == seen
    if side == "sandbox":
        (stage.merged / "large").write_bytes(b"y" * (2 << 20))
    elif side == "host":
        (stage.host / "a.txt").write_text("mine\n")
    elif side == "new":
        (stage.merged / "more").touch()
    else:
        assert review.apply(
            if_match=seen, contents={"a.txt": b"some of it\n"}
        ).paths == ["a.txt", "large"]
        assert (stage.host / "a.txt").read_text() == "some of it\n"
        return
    with pytest.raises(Conflict):
        review.apply(if_match=seen)
    assert not (stage.host / "large").exists()


def test_what_the_sandbox_changes_while_it_is_applied_is_not_applied(
    stage: Stage,
) -> None:
    (stage.merged / "large").write_bytes(b"x" * (2 << 20))
    seen = etag(stage.area.changes())

    def swap(step: str) -> None:
        if step == "journal":
            (stage.merged / "large").write_bytes(b"y" * (2 << 20))

    with pytest.raises(Exception, match="changed in the sandbox since it was shown"):
        apply(stage.area, if_match=seen, step=swap)
    assert not (stage.host / "large").exists()


PIECES = [
    "*",
    "**",
    "/",
    "a",
    "b",
    ".",
    "!",
    "?",
    "[ab]",
    "[!a]",
    "\\",
    " ",
    "x.pyc",
    "#",
]
LINES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
NAMES = st.lists(
    st.sampled_from(["a", "b", "x.pyc", "ab", ".a"]), min_size=1, max_size=4
)


@given(st.lists(LINES, max_size=5), NAMES, st.sampled_from(["", "/"]))
def test_the_quick_look_says_what_the_patterns_say(
    lines: list[str], names: list[str], end: str
) -> None:
    content, path = "\n".join(lines).encode(), "/".join(names) + end
    assert _parsed(content).says(path) == _spec_of(content).check_file(path).include


def test_patterns_that_would_take_for_ever_or_mean_nothing_are_left_out() -> None:
    """A command may have written it, into a project of its own."""
    rules = _parsed(b"*a" * 20 + b"b\n" + b"**/a/" * 20 + b"b\nx[z-a]\n*.log\n")
    assert rules.says("a" * 40) is None
    assert rules.says("a/" * 40 + "c") is None
    assert rules.says("x.log") is True


@pytest.mark.parametrize(("size", "ignored"), [(LONGEST, True), (LONGEST + 1, False)])
def test_too_long_a_file_of_patterns_is_not_read(
    tmp_path: Path, size: int, ignored: bool
) -> None:
    """A million bytes of them took 20 seconds to understand."""
    (tmp_path / ".git").mkdir()
    rules = {"new/.gitignore": b"*.log\n".ljust(size, b"#")}
    with Folder.at(tmp_path) as lower:
        found = Ignored(lower, str(tmp_path), rules.get)
        assert found.covers("new/x.log", is_directory=False, exists=False) is ignored
