"""Root sees and ends the sandboxes of all users, and nothing that a user made up."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import ordinary_user
from tests.engines.oci.test_rootless import user as user
from tests.ordinary_user import OrdinaryUser, account
from tests.surfaces.invoking import belljar

from belljar import Session
from belljar.errors import SessionNotFound, UsageError
from belljar.sandbox import census

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root sees all users' sandboxes"
)
ordinary = pytest.mark.skipif(
    ordinary_user.reason_to_skip() is not None,
    reason=str(ordinary_user.reason_to_skip()),
)

# What a user can make himself: namespaces, a root, and mounts that look like those of a sandbox.
FORGERY = """
import ctypes, os, sys, time
home, id, name, inside = sys.argv[1:]
libc = ctypes.CDLL(None)
source, root = f"{home}/{id}/link", f"{home}/root"
target = f"{root}/.belljar-0123456789abcdef/link"
for path in (source, target):
    os.makedirs(path, exist_ok=True)
assert libc.mount(source.encode(), target.encode(), None, 4096, None) == 0
os.chroot(root) if inside else None
libc.prctl(15, os.fsencode(name), 0, 0, 0)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def second() -> Iterator[OrdinaryUser]:
    with account("second") as made:
        yield made


@contextmanager
def forged(
    user: OrdinaryUser, id: str, *, name: str = "init", pids: bool = True
) -> Iterator[subprocess.Popen[str]]:
    """A process of the user's that looks like a sandbox of that id."""
    who = ["setpriv", f"--reuid={user.uid}", f"--regid={user.uid}", "--clear-groups"]
    apart = [
        "unshare",
        "-U",
        "-r",
        "-m",
        *(["-p", "-f", "--kill-child"] if pids else []),
    ]
    script = user.home / "forge.py"
    script.write_text(FORGERY)
    script.chmod(0o644)
    process = subprocess.Popen(
        [*who, "--", *apart, "/usr/bin/python3", script, user.home, id, name, "yes"],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip("an ordinary user cannot make namespaces here")
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _all() -> dict[str, census.Seen]:
    return {each.id: each for each in census.everybody()}


@pytest.mark.engine
async def test_root_s_own_sandbox_is_seen_as_the_kernel_shows_it(
    base_image: str, root_workspace: Path
) -> None:
    async with Session(root_workspace) as box:
        seen = _all()[box.id]
        assert (seen.user, seen.uid, seen.pid) == ("root", 0, box.sandbox.launched.pid)
        assert seen.workspace.endswith("/workspace")
        assert seen.memory > 0
        assert seen.memory_limit == box.limits.memory
        assert seen.pids_limit > seen.pids > 0
        assert not seen.paused
    assert seen.id not in _all()


@pytest.mark.oci
@pytest.mark.parametrize("owner", [0, 1000])
async def test_root_s_sandbox_without_a_daemon_is_root_s_whoever_owns_the_workspace(
    root_workspace: Path, owner: int
) -> None:
    os.chown(root_workspace, owner, owner)
    async with Session(root_workspace, engine="oci") as box:
        assert _all()[box.id].uid == 0


@pytest.mark.engine
@pytest.mark.parametrize("paused", [False, True])
def test_root_ends_a_session_by_its_id(
    base_image: str, root_workspace: Path, paused: bool
) -> None:
    id = belljar("session", "start", "--workspace", root_workspace).stdout.strip()
    if paused:
        assert belljar("session", "pause", id).status == 0
        assert census.find(id).paused
    assert belljar("kill", id).status == 0
    with pytest.raises(SessionNotFound):
        census.find(id)
    (record,) = belljar(
        "audit", "show", "--kind", "kill", "--session", id, "--json"
    ).json
    assert (record["of_user"], record["of_uid"]) == ("root", 0)
    assert belljar("kill", id).status == 2


@ordinary
def test_an_ordinary_user_s_sandbox_is_seen_and_ended(user: OrdinaryUser) -> None:
    (user.home / "work").mkdir()
    os.chown(user.home / "work", user.uid, user.uid)
    started = user.run(
        "belljar", "session", "start", "--workspace", f"{user.home}/work"
    )
    id = started.stdout.strip()
    seen = _all()[id]
    assert seen.uid == user.uid
    assert seen.memory > 0
    listed = belljar("ps", "--all", "--json").json
    assert [each["user"] for each in listed if each["id"] == id] == [seen.user]
    assert id in belljar("stats", "--all", "--once").stdout
    assert id in user.run("belljar", "ps").stdout
    refused = user.run("belljar", "ps", "--all", check=False)
    assert (refused.returncode, "only root" in refused.stderr) == (2, True)
    assert user.run("belljar", "kill", id, check=False).returncode == 2
    assert belljar("kill", id).status == 0
    assert id not in _all()
    assert id not in user.run("belljar", "ps").stdout
    assert id in user.run("belljar", "prune").stdout


@pytest.mark.engine
async def test_a_forged_id_ends_nothing_of_anybody_else_s(
    base_image: str, root_workspace: Path, second: OrdinaryUser
) -> None:
    async with Session(root_workspace) as box:
        with forged(second, box.id) as process:
            both = [each for each in census.everybody() if each.id == box.id]
            assert {each.uid for each in both} == {0, second.uid}
            with pytest.raises(UsageError, match="several users"):
                census.find(box.id)
            refused = belljar("kill", box.id)
            assert (refused.status, "--user" in refused.stderr) == (2, True)
            theirs = next(each for each in both if each.uid)
            census.end(census.find(box.id, theirs.user))
            assert process.wait(timeout=60) != 0
        assert census.find(box.id).uid == 0
        assert (await box.run("echo alive")).stdout == "alive\n"


def test_a_process_outside_a_pid_namespace_is_no_sandbox(second: OrdinaryUser) -> None:
    """Ending one must never be the end of anything but a namespace of that user's."""
    with forged(second, "bj-0123456789ab", pids=False) as process:
        assert "bj-0123456789ab" not in _all()
        with pytest.raises(SessionNotFound):
            census.find("bj-0123456789ab")
        assert process.poll() is None


def test_no_name_of_a_user_s_breaks_or_paints_the_list(second: OrdinaryUser) -> None:
    name = "\udcff\x1b]0;x) R 1 1"
    with forged(second, "bj-0123456789ac", name=name):
        assert _all()["bj-0123456789ac"].uid == second.uid
        shown = belljar("ps", "--all")
        assert "bj-0123456789ac" in shown.stdout
        assert "\x1b" not in shown.stdout
        assert belljar("stats", "--all", "--once").status == 0


def test_a_run_directory_is_never_read(second: OrdinaryUser) -> None:
    """Fifos, links and lies there reach nobody: only the kernel is asked."""
    lies = second.home / "bj-0123456789ad"
    lies.mkdir()
    os.mkfifo(lies / "session.json")
    (lies / "owner").symlink_to("/dev/zero")
    os.chown(lies, second.uid, second.uid)
    with forged(second, "bj-0123456789ad"):
        assert belljar("ps", "--all", "--json").status == 0
        assert "bj-0123456789ad" in _all()


def test_a_number_that_is_another_process_s_by_now_is_not_signalled(
    second: OrdinaryUser,
) -> None:
    with forged(second, "bj-0123456789ae") as process:
        seen = _all()["bj-0123456789ae"]
        bystander = subprocess.Popen(["sleep", "600"])
        try:
            facts = {**vars(seen), "pid": bystander.pid}
            census.end(census.Seen(**facts))
            census.end(census.Seen(**{**vars(seen), "ticks": seen.ticks - 1}))
            assert bystander.poll() is None
            assert process.poll() is None
        finally:
            bystander.send_signal(signal.SIGKILL)
            bystander.wait()
