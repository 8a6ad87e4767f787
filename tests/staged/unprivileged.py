"""Uses a staged session and prints what it saw as JSON; test_unprivileged.py runs it as an ordinary user."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.prefix = sys.argv[2]  # where the init was built: this may be another Python

import anyio  # noqa: E402

import belljar  # noqa: E402
from belljar.staged.area import StagedArea  # noqa: E402
from belljar.staged.review import Review  # noqa: E402

CHANGE = """
echo two >> a.txt; chmod +x a.txt; rm b.txt; mkdir new; echo x > new/x
rm -r dir; mkdir dir; echo fresh > dir/e.txt; ln -s /etc/passwd out; mv d.txt moved.txt
"""


SHUT = """
chmod 755 shut; echo two > shut/f; echo new > shut/g; chmod 555 shut
mkdir -p made/in; touch made/in/x; chmod 500 made; chmod 700 opened; echo two > opened/f
"""


def modes(workspace: Path) -> dict[str, str]:
    return {
        str(p.relative_to(workspace)): f"{p.stat().st_mode & 0o777:o}"
        for p in workspace.rglob("*")
        if p.is_dir()
    }


async def in_shut_directories(workspace: Path) -> dict[str, Any]:
    """Changes in read-only directories, which their owner can make writable."""
    seen: dict[str, Any] = {}
    for name in ("shut", "opened"):
        (workspace / name).mkdir()
        (workspace / name / "f").write_text("one")
        (workspace / name).chmod(0o555)
    async with belljar.Session(workspace, changes="staged") as box:
        seen["ran"] = (await box.run(SHUT)).stderr
        seen["before"] = modes(workspace)
        await box.apply()
        seen["applied"] = (
            modes(workspace),
            sorted(path.name for path in (workspace / "shut").iterdir()),
        )
        await box.undo_apply()
        seen["undone"] = (
            modes(workspace),
            sorted(path.name for path in (workspace / "shut").iterdir()),
        )
        seen["discarded"] = sorted(await box.discard())
        seen["inside"] = (await box.run("stat -c '%a %n' *; cat */*")).stdout
        await box.run(SHUT)
        point = await box.checkpoint()
        await box.run("chmod 755 shut; rm -r shut; rm -rf opened")
        await box.rollback(point)
        seen["back"] = (await box.run("stat -c '%a %n' *; cat */f")).stdout
        await box.discard()
    for name in ("shut", "opened"):
        (workspace / name).chmod(0o755)
    return seen


async def main(workspace: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with belljar.Session(workspace, changes="staged") as box:
        done = await box.run(CHANGE + "cat a.txt; ls dir; id -u")
        seen["ran"] = [done.exit_code, done.stdout, done.stderr]
        seen["untouched"] = sorted(path.name for path in workspace.rglob("*"))
        seen["changes"] = {change.path: change.kind for change in await box.changes()}
        seen["diff"] = await box.diff(["a.txt"])
        point = await box.checkpoint("good")
        await box.run(
            "rm -rf *; mkdir a.txt; echo x > b.txt; mkfifo fifo; ln -s / d.txt"
        )
        twin = await box.fork()
        seen["twin"] = (await twin.run("ls")).stdout
        await twin.close()
        seen["discarded"] = await box.discard(["d.txt"])
        seen["d.txt"] = (await box.run("cat d.txt")).stdout
        await box.rollback(point)
        seen["still"] = (
            await box.run("cat a.txt; ls . dir; test -x a.txt && readlink out")
        ).stdout
        seen["again"] = {change.path: change.kind for change in await box.changes()}
        await box.apply(["a.txt", "new"])
        id = box.id
    area = StagedArea.find(box.host.staged_root, id)
    seen["later"] = {change.path: change.kind for change in area.changes()}
    review = Review(area)
    seen["later_discarded"] = review.discard(["out"])
    seen["applied"] = review.apply().paths
    seen["left"] = [change.path for change in area.changes()]
    seen["after"] = sorted(
        str(path.relative_to(workspace)) for path in workspace.rglob("*")
    )
    seen["undone"] = review.undo()
    seen["mode"] = (workspace / "a.txt").stat().st_mode & 0o777
    for each in StagedArea.all(area.path.parent):  # its own, and the twin's
        each.remove()
    gone = [
        path
        for path in area.path.parent.rglob("*")
        if not path.name.endswith((".lock", ".gone", ".layers"))
    ]
    seen["remains"] = sorted({path.name for path in gone})
    (workspace / "other").mkdir()
    seen["shut"] = await in_shut_directories(workspace / "other")
    return seen


print(json.dumps(anyio.run(main, Path(sys.argv[1]))))
