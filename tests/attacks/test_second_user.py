"""A second user of the machine attacks root's sandboxes (R1, R16), and one sandbox attacks the quotas of another."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import belljar

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="root's sandboxes are attacked, by a user that root makes"
)

# An attack that once worked: enter through a process of the sandbox, then leave a set-uid file in its workspace.
ATTACK = """
import os, shutil, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    for inside in (f"/proc/{pid}/root/workspace", f"/proc/{pid}/cwd"):
        try:
            if sys.argv[1] not in os.listdir(inside):
                continue
            print("BREACH: entered", inside)
            shutil.copy("/bin/sh", inside + "/planted")
            os.chmod(inside + "/planted", 0o4755)
        except OSError:
            pass
for pid in sys.argv[2:]:
    for name in ("mem", "environ", "fd", "maps"):
        try:
            (os.listdir if name == "fd" else open)(f"/proc/{pid}/{name}")
            print("BREACH: opened", name)
        except OSError:
            pass
    try:
        os.kill(int(pid), 0)
        print("BREACH: may signal")
    except OSError:
        pass
print("done")
"""


@pytest.fixture(scope="module")
def second_user() -> Iterator[int]:
    """A real account, with uid 1000 where that is free."""
    name = f"bj-second-{os.getpid()}"
    number = ["--uid", "1000"] if not _taken(1000) else []
    if shutil.which("useradd") is None:
        pytest.skip("no useradd here")
    subprocess.run(
        ["useradd", "--no-create-home", "--shell", "/bin/sh", *number, name], check=True
    )
    try:
        yield pwd.getpwnam(name).pw_uid
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


def _taken(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _processes(box: belljar.Session) -> list[str]:
    """The sandbox's processes, by their ids on the host."""
    namespace = os.readlink(f"/proc/{box.sandbox.launched.pid}/ns/pid")
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                found.append(pid)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("as_uid", [1000, None], ids=["uid 1000", "a new account"])
async def test_no_local_user_gets_into_root_s_sandbox(
    base_image: str, root_workspace: Path, second_user: int, as_uid: int | None
) -> None:
    (root_workspace / "flag-of-this-test").touch()
    async with belljar.Session(root_workspace) as box:
        await box.start("sleep 60")
        inside = _processes(box)
        assert len(inside) > 1
        uid = as_uid or second_user
        attack = subprocess.run(
            [sys.executable if _usable(uid) else "/usr/bin/python3", "-c", ATTACK, "flag-of-this-test", *inside],
            user=uid, group=uid, extra_groups=[], capture_output=True, text=True, cwd="/", timeout=60, check=False,
        )  # fmt: skip
    assert attack.stdout == "done\n", attack.stdout + attack.stderr
    assert sorted(os.listdir(root_workspace)) == ["flag-of-this-test"]


def _usable(uid: int) -> bool:
    try:
        return (
            subprocess.run(
                [sys.executable, "-c", ""],
                user=uid,
                group=uid,
                extra_groups=[],
                cwd="/",
            ).returncode
            == 0
        )
    except OSError:
        return False


async def test_each_sandbox_of_root_runs_under_a_uid_of_its_own_without_an_account(
    base_image: str, root_workspace: Path
) -> None:
    async with (
        belljar.Session(root_workspace) as one,
        belljar.Session(root_workspace) as other,
    ):
        numbers = {(await box.run("id -u; id -g")).stdout for box in (one, other)}
        assert len(numbers) == 2
        for text in numbers:
            uid, gid = map(int, text.split())
            with pytest.raises(KeyError):
                pwd.getpwuid(uid)
            with pytest.raises(KeyError):
                grp.getgrgid(gid)


async def test_a_sandbox_cannot_use_up_another_s_per_user_kernel_quotas(
    base_image: str, root_workspace: Path
) -> None:
    """The kernel counts inotify instances, pending signals, keys and message queues per user."""
    take = "import ctypes; c = ctypes.CDLL(None); n = 0\nwhile c.inotify_init() >= 0: n += 1\nprint(n, flush=True)"
    (root_workspace / "take.py").write_text(f"{take}\nimport time; time.sleep(60)")
    (root_workspace / "try.py").write_text(
        "import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)"
    )
    async with (
        belljar.Session(root_workspace) as greedy,
        belljar.Session(root_workspace) as other,
    ):
        shell = await greedy.start(["python3", "take.py"])
        assert int((await shell.read(wait=20)).stdout) > 10
        assert (await greedy.run(["python3", "try.py"])).stdout == "False\n"
        assert (await other.run(["python3", "try.py"])).stdout == "True\n"


WHO = """
whoami; id -un; id -gn; echo ~
python3 -c 'import pwd, os; print(*pwd.getpwuid(os.getuid())[:1], os.path.expanduser("~sandbox"))'
git init -q repo && cd repo && git commit -q --allow-empty -m first && git log --format='%an <%ae>'
git config user.name me && git commit -q --allow-empty -m second && git log -1 --format=%an
"""


@pytest.mark.parametrize("owner", [0, 1001])
async def test_the_user_inside_has_a_name_a_home_and_an_identity_for_git(
    base_image: str, root_workspace: Path, owner: int
) -> None:
    os.chown(root_workspace, owner, owner)
    result = await belljar.run(WHO, root_workspace)
    assert result.stdout.split("\n")[:-1] == [
        "sandbox", "sandbox", "sandbox", "/home/sandbox", "sandbox /home/sandbox",
        "sandbox <sandbox@localhost>", "me",
    ]  # fmt: skip
    assert (root_workspace / "repo").stat().st_uid == owner
