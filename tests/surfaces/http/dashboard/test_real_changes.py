"""Reviewing changes, files and a terminal in the browser, of real staged sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.http.serving import KEY, Serving

from .conftest import live, until

pytestmark = pytest.mark.engine
WRITTEN = """
import pathlib
lines = pathlib.Path('main.py').read_text().splitlines()
lines[1], lines[28] = 'second = 2  # <b>', 'last = 29'
pathlib.Path('main.py').write_text('\\n'.join(lines) + '\\n')
pathlib.Path('new.txt').write_text('new\\n')
pathlib.Path('.github/workflows').mkdir(parents=True)
pathlib.Path('.github/workflows/ci.yml').write_text('on: push\\n')
"""


@pytest.fixture
def staged(server: Serving, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A session that changed four things, and its workspace on the host."""
    name = f"w{abs(hash(request.node.name)) % 10**8}"
    workspace = server.state / "serve" / "tenants" / "default" / "workspaces" / name
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "main.py").write_text("".join(f"line_{n} = {n}\n" for n in range(30)))
    if os.geteuid() == 0:
        for each in (workspace, workspace / "main.py"):
            os.chown(each, 1000, 1000)
    session = server.session(changes="staged", workspace=name, name=f"agent-{name}")
    ended = server.run(session, ["python3", "-c", WRITTEN])
    assert ended["exit_code"] == 0, ended
    return session, workspace


def test_a_hunk_a_file_and_undo(
    server: Serving, staged: tuple[str, Path], open_page: Callable[..., Any]
) -> None:
    session, workspace = staged
    page = live(open_page(server.url, f"/sessions/{session}/changes", key=KEY))
    table = page.get_by_role("table", name="Changed files")
    assert page.locator("input:checked").count() == 0
    assert table.get_by_role("row", name="main.py").get_by_role(
        "cell"
    ).all_inner_texts()[1:4] == ["changed", "2", "2"]
    diff = page.get_by_role("region", name="Diff of main.py")
    assert "second = 2  # <b>" in diff.inner_text()
    diff.get_by_role("checkbox", name="Hunk 2 of 2").check()
    table.get_by_role("checkbox", name="Select new.txt").check()
    page.get_by_role("button", name="Apply selected").click()
    page.get_by_role("status", name="Result").get_by_text("2 applied").wait_for()
    text = (workspace / "main.py").read_text()
    assert "last = 29" in text
    assert "second" not in text
    assert (workspace / "new.txt").read_text() == "new\n"
    page.keyboard.press("u")
    page.get_by_role("status", name="Result").get_by_text("2 undone").wait_for()
    assert not (workspace / "new.txt").exists()
    page.keyboard.press("v")
    page.get_by_role("table", name="Hunk 1, side by side").first.wait_for()


def test_what_runs_later_needs_its_own_yes(
    server: Serving, staged: tuple[str, Path], open_page: Callable[..., Any]
) -> None:
    session, workspace = staged
    page = live(open_page(server.url, f"/sessions/{session}/changes", key=KEY))
    page.get_by_role("checkbox", name="Select .github", exact=True).check()
    page.keyboard.press("A")
    page.get_by_role("dialog", name="These run on your machine later").get_by_role(
        "button", name="Cancel"
    ).click()
    assert not (workspace / ".github").exists()
    page.keyboard.press("A")
    page.get_by_role("dialog", name="These run on your machine later").press("y")
    page.get_by_role("status", name="Result").get_by_text("applied").wait_for()
    assert (workspace / ".github").exists()


def test_a_conflict_shows_three_texts_and_is_applied_only_on_purpose(
    server: Serving,
    staged: tuple[str, Path],
    open_page: Callable[..., Any],
    watched: Any,
) -> None:
    watched.expected = ("409",)
    session, workspace = staged
    page = live(open_page(server.url, f"/sessions/{session}/changes", key=KEY))
    (workspace / "main.py").write_text("mine = 1\n")
    page.reload()
    live(page)
    page.get_by_text("changed on your side too").wait_for()
    page.get_by_role("checkbox", name="Select main.py").check()
    page.get_by_role("button", name="Apply selected").click()
    dialog = page.get_by_role("dialog", name="Changed on both sides")
    assert (
        dialog.get_by_role("region", name="On your side")
        .inner_text()
        .strip()
        .endswith("mine = 1")
    )
    assert (
        "second = 2" in dialog.get_by_role("region", name="In the session").inner_text()
    )
    assert "line_1 = 1" in dialog.get_by_role("region", name="Before").inner_text()
    dialog.get_by_role("button", name="Apply anyway").click()
    page.get_by_role("status", name="Result").get_by_text("1 applied").wait_for()
    assert "second = 2" in (workspace / "main.py").read_text()


def test_discarding_asks_and_is_shown(
    server: Serving, staged: tuple[str, Path], open_page: Callable[..., Any]
) -> None:
    session, _ = staged
    page = live(open_page(server.url, f"/sessions/{session}/changes", key=KEY))
    page.get_by_role("checkbox", name="Select new.txt").check()
    page.get_by_role("button", name="Discard selected").click()
    page.get_by_role("dialog", name="Discard 1 change?").get_by_role(
        "button", name="Discard them"
    ).click()
    page.get_by_role("status", name="Result").get_by_text("1 discarded").wait_for()
    assert page.get_by_role("checkbox", name="Select new.txt").count() == 0


def test_files_are_listed_and_downloaded_never_shown(
    server: Serving, staged: tuple[str, Path], open_page: Callable[..., Any]
) -> None:
    session, _ = staged
    page = live(open_page(server.url, f"/sessions/{session}/files", key=KEY))
    link = page.get_by_role("table", name="Files").get_by_role("link", name="new.txt")
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_text() == "new\n"


def test_a_terminal_is_a_shell_inside(
    server: Serving, staged: tuple[str, Path], open_page: Callable[..., Any]
) -> None:
    session, _ = staged
    page = open_page(server.url, f"/sessions/{session}/terminal", key=KEY)
    page.get_by_role("button", name="Open a terminal").click()
    page.get_by_text("Connected.").wait_for()
    page.keyboard.type("echo $((6 * 7))-inside\n")
    until(
        page, "document.querySelector('.xterm-rows').textContent.includes('42-inside')"
    )
    page.keyboard.type("exit\n")
    page.get_by_text("The shell has ended (exited).").wait_for()
