"""Diffs as HTML: hunks, sides, colours, and nothing of a file as markup."""

from __future__ import annotations

import re

from belljar.surfaces.http.dashboard import diffs

from .made_up import DIFF


def test_a_diff_is_taken_apart_by_file_and_hunk() -> None:
    files = diffs.parse(DIFF)
    assert [(len(each.hunks), each.added, each.removed) for each in files] == [
        (2, 4, 2),
        (1, 2, 0),
        (0, 0, 0),
        (1, 0, 1),
    ]
    assert [
        (line.old, line.new, line.sign)
        for line in files[0].hunks[1].lines
        if line.sign != " "
    ] == [(None, 43, "+")]


def test_what_went_stands_beside_what_came() -> None:
    (hunk,) = diffs.parse(
        "diff --git a/x b/x\n@@ -1,3 +1,2 @@\n-one\n-two\n+TWO\n same\n"
    )[0].hunks
    assert [(left["kind"], right["kind"]) for left, right in hunk.pairs] == [
        ("removed", "added"),
        ("removed", "none"),
        ("same", "same"),
    ]


def test_hostile_contents_stay_text_in_colours() -> None:
    evil = "<script>alert(1)</script> & \u202e \x1b]0;x\x07"
    for name in ("x.py", "x.html", "x.unknown", "Makefile"):
        (file,) = diffs.parse(
            f"diff --git a/x b/x\n@@ -0,0 +1,2 @@\n+{evil}\n+second\n"
        )
        diffs.colour(file, name)
        html = "".join(str(line.html) for line in file.hunks[0].lines)
        assert "<script" not in html, name
        assert "⟨U+202E⟩" in re.sub("<[^>]+>", "", html)
        assert "\x1b" not in html
        assert "second" in str(file.hunks[0].lines[1].html)


def test_a_long_diff_and_a_long_line_are_cut_and_say_so() -> None:
    text = "diff --git a/x b/x\n@@ -0,0 +1,5000 @@\n" + "".join(
        f"+line {n}\n" for n in range(5000)
    )
    (file,) = diffs.parse(text)
    assert (file.cut, file.added, len(file.hunks[0].lines)) == (2000, 5000, 3000)
    (wide,) = diffs.parse("diff --git a/x b/x\n@@ -0,0 +1 @@\n+" + "y" * 10_000 + "\n")
    diffs.colour(wide, "x.txt")
    assert str(wide.hunks[0].lines[0].html).endswith("… 8,000 more characters")
