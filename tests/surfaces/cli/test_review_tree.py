"""The tree of changes: directories stand for what is below them."""

from __future__ import annotations

from belljar.staged.change import Change, Entry, Kind
from belljar.surfaces.cli.review_tree import FOLDED, Node, Tree

FILE, DIRECTORY = Entry("file", 0o644), Entry("directory", 0o755)


def file(path: str, kind: Kind = "modified", **more: object) -> Change:
    return Change(path, kind, FILE if kind == "modified" else None, FILE, **more)  # type: ignore[arg-type]


def folder(path: str, kind: Kind = "added") -> Change:
    return Change(path, kind, DIRECTORY if kind == "mode" else None, DIRECTORY)


def shown(tree: Tree) -> list[str]:
    return [f"{'  ' * row.depth}{tree.mark(row)} {row.path}" for row in tree.rows]


def row(tree: Tree, path: str) -> Node:
    return next(each for each in tree.rows if each.path == path)


def test_changes_stand_below_their_directories_and_a_new_directory_is_no_change_of_its_own() -> (
    None
):
    changes = [
        file("a"),
        folder("m", "mode"),
        file("m/x"),
        folder("new"),
        folder("new/e"),
        file("new/e/f", "added"),
    ]
    tree = Tree([*changes, folder("p"), file("q/r/s"), file("z")])
    assert [row.path for row in tree.rows] == [
        "a", "m", "m", "m/x", "new", "new/e", "new/e/f", "p", "q", "q/r", "q/r/s", "z",
    ]  # fmt: skip
    assert [item.change.path for item in tree.items] == [
        "a",
        "m",
        "m/x",
        "new/e/f",
        "p",
        "q/r/s",
        "z",
    ]


def test_a_directory_is_chosen_with_all_below_and_let_go_again() -> None:
    tree = Tree([file("a"), file("d/b"), file("d/e/c"), file("d/e/f")])
    tree.toggle(row(tree, "d/e/c"))
    assert shown(tree) == [
        "[ ] a",
        "[-] d",
        "  [ ] d/b",
        "  [-] d/e",
        "    [x] d/e/c",
        "    [ ] d/e/f",
    ]
    tree.toggle(row(tree, "d"))
    assert [item.change.path for item in tree.chosen] == ["d/b", "d/e/c", "d/e/f"]
    tree.toggle(row(tree, "d"))
    assert tree.chosen == []


def test_what_needs_a_yes_of_its_own_is_not_chosen_with_its_directory() -> None:
    tree = Tree(
        [
            file("d/a"),
            file("d/b", conflict="changed on the host"),
            file("d/hook", runs_later=True),
        ]
    )
    assert [item.change.path for item in tree.toggle(row(tree, "d"))] == [
        "d/b",
        "d/hook",
    ]
    assert [item.change.path for item in tree.chosen] == ["d/a"]
    tree.toggle(row(tree, "d/hook"))
    assert [item.change.path for item in tree.chosen] == ["d/a", "d/hook"]


def test_what_cannot_be_applied_is_never_chosen() -> None:
    tree = Tree([Change("pipe", "added", None, Entry("fifo", 0o644)), file("z")])
    tree.toggle(row(tree, "pipe"))
    tree.toggle_all()
    assert [item.change.path for item in tree.chosen] == ["z"]


def test_a_large_new_directory_is_folded_and_opened_for_what_is_sought() -> None:
    inside = [file(f"new/f{number:03}", "added") for number in range(FOLDED + 1)]
    tree = Tree([folder("new"), *inside, file("z")])
    assert [each.path for each in tree.rows] == ["new", "z"]
    at = tree.show(tree.items[7])
    assert tree.rows[at].path == "new/f007"
    assert tree.above(tree.rows[at]) is row(tree, "new")
    tree.fold(row(tree, "new"), is_open=False)
    assert len(tree.rows) == 2
