"""A sandbox's files, with blocking calls."""

from pathlib import Path

from belljar import sync


def test_files_are_written_read_listed_and_removed(workspace: Path) -> None:
    with sync.Session(workspace) as box:
        box.files.mkdir("notes")
        box.files.write("notes/a.txt", b"one\n")
        box.files.append("notes/a.txt", b"two\n")
        assert box.files.read("notes/a.txt") == b"one\ntwo\n"
        assert [each.path.rpartition("/")[2] for each in box.files.list("notes")] == [
            "a.txt"
        ]
        box.files.remove("notes/a.txt")
        assert not box.files.exists("notes/a.txt")
