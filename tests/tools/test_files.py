"""The file tools, in a real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar import Session, ToolRegistry, Verdict


@pytest.fixture(scope="module")
def files(box: Session) -> ToolRegistry:
    return ToolRegistry(box, families=("files",))


def test_file_tools_are_there_on_request_only() -> None:
    assert "read_file" not in ToolRegistry()
    assert ToolRegistry(families=("files",)).names() == [
        "read_file", "write_file", "edit_file", "list_files", "search_files",
    ]  # fmt: skip


async def test_files_can_be_written_read_edited_listed_and_searched(
    files: ToolRegistry, place: Path
) -> None:
    written = await files.call(
        "write_file", {"path": "new/app.py", "content": "one\ntwo\nthree\n"}
    )
    assert written.success, written.error
    assert (place / "new" / "app.py").read_text() == "one\ntwo\nthree\n"
    shown = await files.call(
        "read_file", {"path": "new/app.py", "offset": 2, "limit": 1}
    )
    assert (shown.output, shown.metadata.lines) == ("     2\ttwo", 3)
    edited = await files.call(
        "edit_file", {"path": "new/app.py", "old": "two", "new": "2"}
    )
    assert edited.success
    assert (place / "new" / "app.py").read_text() == "one\n2\nthree\n"
    listed = await files.call("list_files", {"depth": 2})
    assert "new/app.py (12)" in (listed.output or "")
    found = await files.call("search_files", {"pattern": "th+ree"})
    assert found.output == "new/app.py:3:three"


async def test_an_ambiguous_edit_changes_nothing(
    files: ToolRegistry, place: Path
) -> None:
    await files.call("write_file", {"path": "twice", "content": "a a"})
    assert (
        await files.call("edit_file", {"path": "twice", "old": "a", "new": "b"})
    ).code == "ambiguous"
    assert (
        await files.call("edit_file", {"path": "twice", "old": "c", "new": "b"})
    ).code == "not_found"
    assert (place / "twice").read_text() == "a a"
    assert (
        await files.call(
            "edit_file", {"path": "twice", "old": "a", "new": "b", "replace_all": True}
        )
    ).success
    assert (place / "twice").read_text() == "b b"


async def test_a_file_of_the_sandbox_is_read_as_far_as_policy_and_user_allow(
    files: ToolRegistry,
) -> None:
    assert "Debian" in (await files.call("read_file", {"path": "/etc/os-release"})).text
    for path in ("/etc/shadow", "../etc/shadow"):
        result = await files.call("read_file", {"path": path})
        assert not result.success
        assert "credentials" in (result.error or "")


async def test_a_person_is_asked_about_the_file_and_sees_what_would_be_in_it(
    place: Path, base_image: str
) -> None:
    asked: list[Verdict] = []
    async with Session(
        place, approve=lambda verdict: asked.append(verdict) or False
    ) as box:
        files = ToolRegistry(box, families=("files",))
        for content in ("one", "two"):
            await files.call("write_file", {"path": ".envrc", "content": content})
    assert [verdict.about for verdict in asked] == ["file", "file"]
    assert asked[0].canonical == "write .envrc:\none"
    assert asked[0].digest != asked[1].digest, (
        "an answer is good for the content that was shown only"
    )


async def test_a_failure_is_reported_in_plain_words(
    files: ToolRegistry, place: Path
) -> None:
    (place / "lnk").symlink_to("/etc/gshadow")
    (place / "image.bin").write_bytes(b"\x89PNG\0\0\1")
    said = {
        "'[' is not an extended regular expression": await files.call(
            "search_files", {"pattern": "["}
        ),
        "lnk: Permission denied": await files.call("read_file", {"path": "lnk"}),
        "image.bin is a binary file of 7 bytes": await files.call(
            "read_file", {"path": "image.bin"}
        ),
    }
    for words, result in said.items():
        assert not result.success
        assert words in (result.error or "")


async def test_a_file_that_is_not_shown_whole_says_so_and_how_to_go_on(
    files: ToolRegistry, place: Path
) -> None:
    (place / "long").write_text("x\n" * 5000)
    first = await files.call("read_file", {"path": "long"})
    assert (first.metadata.truncated, first.metadata.shown) == (True, 2000)
    assert first.text.startswith("Lines 1 to 2000 of 5000; offset=2001 continues.\n")
    last = await files.call("read_file", {"path": "long", "offset": 4001})
    assert (last.metadata.truncated, last.message) == (False, None)


async def test_the_policy_judges_file_tools(files: ToolRegistry, place: Path) -> None:
    result = await files.call(
        "write_file", {"path": ".git/hooks/pre-commit", "content": "evil"}
    )
    assert not result.success
    assert not (place / ".git").exists()
