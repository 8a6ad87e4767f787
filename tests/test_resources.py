"""Where Belljar finds the files beside its code."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from belljar import resources
from belljar.errors import EngineError


def test_the_files_that_ship_are_found() -> None:
    assert (resources.directory("policies") / "default.toml").is_file()
    assert (resources.directory("sandbox-images") / "base").is_dir()
    assert resources.init_binary().read_bytes().startswith(b"\x7fELF")
    assert resources.init_binary("amd64") == resources.init_binary("x86_64")


def test_a_machine_without_an_init_is_named() -> None:
    with pytest.raises(EngineError, match="no init for riscv64"):
        resources.init_binary("riscv64")


def test_a_remembered_key_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not resources.is_remembered("kind", "key")
    resources.remember("kind", "key")
    assert resources.is_remembered("kind", "key")
    assert not resources.is_remembered("other", "key")


@pytest.mark.root
def test_another_user_s_cache_is_neither_written_nor_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo` may keep the caller's HOME. A link there would make root create a file anywhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "belljar" / "kind").mkdir(parents=True)
    (tmp_path / "belljar" / "kind" / "key").symlink_to(tmp_path / "anywhere")
    (tmp_path / "belljar" / "kind" / "believed").touch()
    os.chown(tmp_path / "belljar", 1000, 1000)
    resources.remember("kind", "key")
    assert not (tmp_path / "anywhere").exists()
    assert not resources.is_remembered("kind", "believed")


def test_a_lock_that_is_a_link_is_refused_and_a_file_is_not_truncated(
    tmp_path: Path,
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "lock").symlink_to(victim)
    with (
        pytest.raises(OSError, match="symbolic links"),
        resources.locked(tmp_path / "lock"),
    ):
        pass
    second = resources.locked(victim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with resources.locked(victim), pytest.raises(BlockingIOError), second:
        pass
    assert victim.read_text() == "kept"


def test_every_lock_file_is_opened_without_truncating_it() -> None:
    source = Path(resources.__file__).parent
    opened = re.compile(
        r'open\([^\n]*lock[^\n]*, "w|open\([^\n]*lock"(?![^\n]*O_NOFOLLOW)'
    )
    assert not [
        path for path in source.rglob("*.py") if opened.search(path.read_text())
    ]


def test_a_file_without_a_json_object_reads_as_none(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("[]")
    (tmp_path / "broken").write_text("{")
    (tmp_path / "fine").write_text('{"a": 1}')
    found = [
        resources.read_json(tmp_path / name)
        for name in ("list", "broken", "missing", "fine")
    ]
    assert found == [None, None, None, {"a": 1}]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "facts").write_text("old")
    with (tmp_path / "facts").open() as reader:
        resources.write_whole(tmp_path / "facts", "new")
        assert (reader.read(), (tmp_path / "facts").read_text()) == ("old", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["facts"]
    assert (tmp_path / "facts").stat().st_mode & 0o777 == 0o600


def test_a_directory_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(FileNotFoundError), resources.new_directory(target) as made:
        (made / "no such directory" / "file").touch()
    assert not any(tmp_path.iterdir())
    for content in ("first", "second"):
        with resources.new_directory(target) as made:
            assert not target.exists() or content == "second"
            (made / "file").write_text(content)
    assert (target / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_new_state_directories_work_with_every_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    monkeypatch.delenv("BELLJAR_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home/.local/state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home/.cache"))
    before = os.umask(mask)
    try:
        for _ in range(2):
            assert (
                resources.state_dir().stat().st_mode & 0o777,
                resources.cache_dir().is_dir(),
            ) == (0o700, True)
    finally:
        os.umask(before)
    assert not [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o022]


def test_the_limit_on_open_files_is_raised_before_it_is_reached_and_never_past_what_may_be() -> (
    None
):
    """A host with many sessions needs more descriptors than a shell gives by default."""
    script = """
import os, resource
from belljar import resources
limits = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
resources.make_room_for(31)
print(*limits())
for _ in range(190):
    resources.make_room_for(os.open("/", os.O_PATH))
print(*limits())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["64 200", "200 200"]
