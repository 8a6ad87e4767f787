"""`belljar setup-user` for a real user: afterwards his sandbox starts, and `--remove` leaves nothing."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.oci.test_rootless import user as hungry
from tests.ordinary_user import OrdinaryUser, account, reason_to_skip
from tests.surfaces.invoking import belljar

from belljar import enforcement
from belljar.engines.oci import cgroups
from belljar.surfaces.cli import setup_user
from belljar.surfaces.cli.main import main

__all__ = ["hungry"]

FILES = [Path("/etc/subuid"), Path("/etc/subgid")]


@pytest.fixture
def user() -> Iterator[OrdinaryUser]:
    """One that has nothing yet."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    with account() as made:
        name = pwd.getpwuid(made.uid).pw_name
        for kind, file in zip(("uid", "gid"), FILES, strict=True):
            for line in file.read_text().splitlines():
                if line.startswith(f"{name}:"):
                    first, count = map(int, line.split(":")[1:])
                    subprocess.run(
                        [
                            "usermod",
                            f"--del-sub{kind}s",
                            f"{first}-{first + count - 1}",
                            name,
                        ],
                        check=True,
                    )
        yield made
        belljar("setup-user", "--remove", "--yes", str(made.uid))


def _state(uid: int) -> object:
    return [file.read_text() for file in FILES], [
        os.path.exists(path) for path in cgroups.places_for(uid)
    ]


def test_his_sandbox_starts_and_afterwards_nothing_is_left(user: OrdinaryUser) -> None:
    before = _state(user.uid)
    name = pwd.getpwuid(user.uid).pw_name
    refused = user.run("belljar", "doctor", check=False, env={"BELLJAR_ENGINE": "oci"})
    assert f"sudo belljar setup-user {user.uid}" in refused.stdout
    told = belljar("setup-user", "--yes", name)
    assert told.status == 0, told.stderr
    assert "usermod --add-subuids" in told.stderr
    again = belljar("setup-user", name, "--json")
    assert json.loads(again.stdout) == {"user": name, "done": []}
    works = user.run(
        "belljar", "doctor", check=False, env={"BELLJAR_ENGINE": "oci"}
    ).stdout
    assert "no control groups are yours" not in works
    assert "in /etc/subuid" not in works
    removed = belljar("setup-user", "--remove", "--yes", name)
    assert removed.status == 0, removed.stderr
    assert _state(user.uid) == before
    assert belljar("setup-user", "--remove", "--yes", name).status == 2


def test_without_a_yes_nothing_changes(user: OrdinaryUser) -> None:
    before = _state(user.uid)
    answer = belljar("setup-user", str(user.uid))
    assert (answer.status, _state(user.uid)) == (2, before)
    assert "nothing was changed" in answer.stderr
    assert not (setup_user.NOTES / f"{pwd.getpwuid(user.uid).pw_name}.json").exists()


@pytest.mark.parametrize("name", ["root", "0", "nobody-of-that-name", ""])
def test_others_are_refused(name: str) -> None:
    assert belljar("setup-user", "--yes", name).status == 2


HUNGRY = """
import sys
from belljar import Limits
from belljar.sync import Session
with Session(sys.argv[1], limits=Limits(memory="600m", cpus=1, disk=0), policy="none") as box:
    eat = "x = bytearray(int(400e6)); print(len(x))"
    print(box.run(["python3", "-c", eat]).stdout.strip() or "too much")
"""


def test_a_quota_becomes_a_limit_that_binds_whatever_he_starts(
    hungry: OrdinaryUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here by a Belljar that knows of no quota. Only root can change the limit."""
    user, name = hungry, pwd.getpwuid(hungry.uid).pw_name
    operator = tmp_path / "operator.toml"
    monkeypatch.setattr(enforcement, "OPERATOR", operator)
    group = f"/sys/fs/cgroup/memory/belljar-{user.uid}"
    (user.home / "hungry").mkdir()
    os.chown(user.home / "hungry", user.uid, user.uid)
    eat = ("-c", HUNGRY, f"{user.home}/hungry")
    assert user.python(*eat).stdout == "400000000\n"
    operator.write_text(f'[quota."{name}"]\nmemory = "300m"\ncpus = 1.5\n')
    assert main(["setup-user", "--yes", name]) == 0
    limit = Path(group, "memory.limit_in_bytes")
    assert int(limit.read_text()) == 300 << 20
    assert int(Path(group.replace("memory", "cpu"), "cpu.cfs_quota_us").read_text()) == 150_000  # fmt: skip
    assert user.python(*eat).stdout == "too much\n"
    for deed in (f"echo -1 > {limit}", f"chmod 666 {limit}", f"rmdir {group}"):
        assert user.run("sh", "-c", deed, check=False).returncode != 0
    assert [*setup_user.plan(pwd.getpwuid(user.uid))] == []
    operator.write_text("")
    assert main(["setup-user", "--yes", name]) == 0
    assert int(limit.read_text()) > 1 << 60
    assert user.python(*eat).stdout == "400000000\n"
