from __future__ import annotations

import os
from pathlib import Path

import pytest

import belljar
from belljar.engines.spec import TERMINALS
from belljar.sandbox import terminals

TAKE = """
import os
taken = []
try:
    while len(taken) < 1000:
        taken.append(os.openpty())
except OSError as error:
    print(len(taken), error.strerror)
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may change what an engine mounted"
)
async def test_the_number_of_terminals_in_a_sandbox_is_bounded(
    base_image: str, workspace: Path
) -> None:
    """All containers of the machine share one limit of terminals."""
    (workspace / "take.py").write_text(TAKE)
    async with belljar.Session(workspace=workspace) as box:
        mounted = (await box.run(["grep", " /dev/pts ", "/proc/self/mountinfo"])).stdout
        taken = await box.run(["python3", "take.py"])
        typed = await box.start(
            "tty; stty size; test -c $(tty) && stat -c %a $(tty)", pty=True
        )
        shown = (await typed.wait()).stdout
    assert taken.stdout == f"{TERMINALS} No space left on device\n", taken.output
    assert ",mode=620,ptmxmode=666,max=128" in mounted
    assert shown.split() == ["/dev/pts/0", "24", "80", "620"]


def test_the_host_s_own_terminals_are_left_alone() -> None:
    before = _terminals_here()
    terminals.limit(os.getpid())
    assert _terminals_here() == before


def _terminals_here() -> list[str]:
    return [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if " /dev/pts " in line
    ]


MOUNTS = """\
389 388 0:137 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,ptmxmode=666
390 386 0:138 / /sys ro,nosuid - sysfs sysfs ro
"""


def test_the_mount_options_of_devpts_are_read() -> None:
    assert terminals._options(MOUNTS) == {"gid": "5", "mode": "620", "ptmxmode": "666"}


@pytest.mark.parametrize(
    "mounts", ["", MOUNTS + "400 389 0:1 / /dev/pts rw - tmpfs tmpfs rw,size=1\n"]
)
def test_a_mount_that_is_no_devpts_is_left_alone(mounts: str) -> None:
    assert terminals._options(mounts) is None


def test_limiting_the_terminals_of_a_gone_process_does_nothing() -> None:
    assert not terminals.limit(1 << 22)
