"""Each sandbox gets a user id that no account and no other sandbox has."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from belljar.errors import ProtectionMissing, UsageError
from belljar.workspace import uids


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(uids, "_REGISTRY", tmp_path / "machine" / "uids")
    monkeypatch.delenv(uids.SETTING, raising=False)
    return tmp_path / "machine" / "uids"


def run_dir(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "run" / name
    path.mkdir(parents=True)
    return path


def test_an_id_is_from_the_range_and_unused(tmp_path: Path) -> None:
    uid = uids.reserve(run_dir(tmp_path, "a"))
    assert 70000 <= uid <= 99999
    with pytest.raises(KeyError):
        pwd.getpwuid(uid)


def test_no_two_living_sandboxes_have_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(uids.SETTING, "80000-80003")
    dirs = [run_dir(tmp_path, name) for name in "abcde"]
    assert sorted(uids.reserve(each) for each in dirs[:4]) == [
        80000,
        80001,
        80002,
        80003,
    ]
    with pytest.raises(ProtectionMissing, match="80000-80003"):
        uids.reserve(dirs[4])
    dirs[1].rmdir()
    assert 80000 <= uids.reserve(dirs[4]) <= 80003, (
        "that of a sandbox that is gone is free again"
    )


def test_processes_that_reserve_at_the_same_time_do_not_collide(
    tmp_path: Path, registry: Path
) -> None:
    script = """
import sys
from pathlib import Path
from belljar.workspace import uids
uids._REGISTRY = Path(sys.argv[1])
for n in range(20):
    path = Path(sys.argv[2], f"{sys.argv[3]}-{n}")
    path.mkdir(parents=True)
    print(uids.reserve(path))
"""
    environment = {**os.environ, uids.SETTING: "80000-80079"}
    arguments = [sys.executable, "-c", script, str(registry), str(tmp_path / "run")]
    running = [
        subprocess.Popen(
            [*arguments, str(n)], stdout=subprocess.PIPE, env=environment, text=True
        )
        for n in range(4)
    ]
    got = [
        int(line)
        for each in running
        for line in each.communicate(timeout=60)[0].split()
    ]
    assert sorted(got) == list(range(80000, 80080))


def test_ids_of_accounts_and_of_their_namespaces_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(uids.SETTING, "80000-80003")
    monkeypatch.setattr(uids, "has_account", lambda number: number == 80001)
    monkeypatch.setattr(uids, "_lent_ranges", lambda: [(80002, 80003)])
    assert uids.reserve(run_dir(tmp_path, "a")) == 80000
    with pytest.raises(ProtectionMissing):
        uids.reserve(run_dir(tmp_path, "b"))


def test_every_account_of_this_machine_counts() -> None:
    assert all(uids.has_account(each.pw_uid) for each in pwd.getpwall())
    assert not uids.has_account(77777)


@pytest.mark.parametrize(
    "text",
    ["0-10", "5", "a-b", "3000-2000", "-1-5", "1000-4294967295", "70000-99999,5"],
)
def test_an_invalid_range_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(uids.SETTING, text)
    with pytest.raises(UsageError, match="BELLJAR_UIDS"):
        uids.allowed()


@pytest.mark.parametrize(
    "text", ["80003-80000", "80000", "0-10", "80000-99999999999", "a-b"]
)
def test_what_is_no_range_of_ids_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(uids.SETTING, text)
    with pytest.raises(UsageError, match="range of user ids"):
        uids.allowed()


def test_a_range_may_hold_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(uids.SETTING, "80000-80000")
    assert uids.allowed() == (80000, 80000)


def test_lent_ids_are_read_from_both_files_and_from_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uids, "Path", lambda path: tmp_path / Path(path).name)
    (tmp_path / "subgid").write_text("a:100000:10\nno range\nb:x:1\n")
    assert uids._lent_ranges() == [(100000, 100009)]
    (tmp_path / "subuid").write_text("a:200000:1\n")
    assert uids._lent_ranges() == [(200000, 200000), (100000, 100009)]


def test_other_reservations_are_read_only_where_the_drawn_id_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start must not take longer the more sandboxes there are."""
    read = []
    living = uids._living
    monkeypatch.setattr(uids, "_living", lambda at: read.append(at) or living(at))
    monkeypatch.setenv(uids.SETTING, "80000-80001")
    first = uids.reserve(run_dir(tmp_path, "a"))
    assert not read
    monkeypatch.setenv(uids.SETTING, f"{first}-{first}")
    with pytest.raises(ProtectionMissing):
        uids.reserve(run_dir(tmp_path, "b"))
    assert len(read) == 1
    (tmp_path / "run" / "a").rmdir()
    assert uids.reserve(tmp_path / "run" / "b") == first
