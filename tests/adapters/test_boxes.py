"""Sessions from plain options, in directories of their own."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

import belljar
from belljar.adapters import boxes
from belljar.errors import UsageError


@pytest.mark.engine
async def test_a_session_without_a_workspace_has_an_empty_one_that_ends_with_it() -> (
    None
):
    box = await boxes.opened(policy="none")
    place = box.options.workspace
    assert (await box.run("ls -A; echo made > file")).stdout == ""
    assert os.listdir(place) == ["file"]
    await boxes.closed(box)
    assert not box.is_open
    assert not os.path.exists(os.path.dirname(place))


def test_a_new_workspace_is_closed_to_other_users_of_the_host_and_open_in_the_sandbox() -> (
    None
):
    before = os.umask(0o077)
    try:
        place = boxes.session().options.workspace
    finally:
        os.umask(before)
    assert [
        stat.S_IMODE(os.stat(path).st_mode) for path in (place, os.path.dirname(place))
    ] == [0o755, 0o700]
    shutil.rmtree(os.path.dirname(place))


@pytest.mark.engine
async def test_a_named_workspace_stays(workspace: Path) -> None:
    box = await boxes.opened(workspace)
    await boxes.closed(box)
    assert workspace.is_dir()


@pytest.mark.engine
async def test_a_cancelled_close_leaves_nothing() -> None:
    box = await boxes.opened()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await boxes.closed(box)
    assert not box.is_open
    assert not os.path.exists(box.options.workspace)


@pytest.mark.engine
async def test_a_session_that_cannot_be_opened_leaves_no_directory() -> None:
    made = boxes.session(image="no-such-image-anywhere")
    place = made.options.workspace
    with pytest.raises(belljar.BelljarError):
        await boxes.open_or_remove(made)
    assert not os.path.exists(place)


@pytest.mark.engine
async def test_a_write_goes_through_links_and_keeps_the_mode(workspace: Path) -> None:
    box = await boxes.opened(workspace, policy="none")
    try:
        await box.run(
            "echo old > script; chmod 755 script; mkdir d; ln -s ../script d/link; ln -s d/link . ; ln -s a b"
        )
        await box.run("ln -s b a; ln -s new dangling")
        await boxes.write(box, "/workspace/link", "new\n")
        await boxes.write(box, "dangling", b"made\n")
        await boxes.write(box, "deep/in/it", b"made\n")
        shown = await box.run(
            "ls -l script | cut -c1-10; cat script new deep/in/it; readlink link d/link"
        )
        assert shown.stdout == "-rwxr-xr-x\nnew\nmade\nmade\nd/link\n../script\n"
        with pytest.raises(OSError, match="Too many levels"):
            await boxes.write(box, "a", b"")
    finally:
        await boxes.closed(box)


def test_a_wrong_option_leaves_no_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="imag"):
        boxes.session(imag="python")
    with pytest.raises(UsageError):
        boxes.session(image="")
    assert list(tmp_path.iterdir()) == []


def test_plain_data_becomes_options(tmp_path: Path) -> None:
    file = tmp_path / "belljar.toml"
    file.write_text(
        'image = "python"\nlimits = { memory = "1g" }\nnetwork = ["api.example.com"]\n'
    )
    options = boxes.options_of(boxes.options_in(file))
    assert options["image"] == "python"
    assert options["limits"].memory == 1 << 30
    assert isinstance(options["network"], belljar.Allow)
    file.with_suffix(".json").write_text('{"root": true}')
    assert boxes.options_in(file.with_suffix(".json")) == {"root": True}


def test_options_become_data_and_options_again() -> None:
    given: dict[str, Any] = {
        "image": "python",
        "limits": belljar.Limits(memory="1g"),
        "network": belljar.Allow("a.example"),
        "policy": belljar.Policy.load("strict"),
    }
    data = json.loads(
        json.dumps({name: boxes.plain(value) for name, value in given.items()})
    )
    restored = boxes.options_of(data)
    assert restored.pop("policy").as_dict() == given.pop("policy").as_dict()
    assert restored == given


def test_a_file_that_holds_no_options_is_named_in_the_error(tmp_path: Path) -> None:
    for name, text in (
        ("missing.toml", None),
        ("bad.toml", "image ="),
        ("list.json", "[]"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match=name):
            boxes.options_in(tmp_path / name)
