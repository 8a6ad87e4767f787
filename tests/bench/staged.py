"""Staged workspaces, compared with the same session without staging."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

from anyio import to_thread

from belljar import Session
from belljar import host as hosts
from belljar.staged import overlay
from belljar.staged.change import counted
from belljar.workspace.idmap import unmount

from .core import timed, timed_async
from .table import Row, ms, p50

ROUNDS = int(os.environ.get("BELLJAR_BENCH_STAGED_ROUNDS", "10"))
FILES, CHANGED, DIFFED, POINTS = 50_000, 10, 1000, 20
MANY, DIFFS = 10_000, 5
AS_OWNER = ("--reuid=1000", "--regid=1000", "--clear-groups")
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}
COMMANDS = {
    "git status": "git -c safe.directory='*' status --porcelain",
    "tar of the tree": "tar -cf - src | cat > /dev/null",  # tar reads no file if its output is /dev/null itself
    "python start": "python3 -m unittest -q tiny 2>/dev/null",
}


def fill(workspace: Path) -> None:
    for folder in range(FILES // 500):
        place = workspace / "src" / f"d{folder}"
        place.mkdir(parents=True, exist_ok=True)
        for number in range(500):
            (place / f"f{number}.py").write_text(f"value = {number}\n")
    (workspace / "tiny.py").write_text("import unittest\n")
    git = [
        "git",
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-C",
        str(workspace),
    ]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "1000:1000", str(workspace)], check=True)


async def opening(workspace: Path) -> list[Row]:
    async def once(changes: str) -> None:
        async with Session(workspace, changes=changes) as box:  # type: ignore[arg-type]
            times[changes].append(time.perf_counter() - begun)
            assert (await box.run("echo hi")).stdout == "hi\n"

    times: dict[str, list[float]] = {"direct": [], "staged": []}
    for _ in range(ROUNDS):
        for changes in times:
            begun = time.perf_counter()
            await once(changes)
    staged, direct = p50(times["staged"]), p50(times["direct"])
    more = staged - direct
    return [
        Row(
            "opening",
            ms(staged),
            f"direct {ms(direct)}",
            f"+{ms(more)}",
            "<= +30 ms",
            more <= 0.030,
        )
    ]


def overlayfs_alone(workspace: Path, directory: Path) -> dict[str, str]:
    """The same commands on a plain overlay without Belljar: the cost that we cannot avoid."""
    if os.geteuid() != 0:
        return dict.fromkeys(COMMANDS, "")
    upper, work, merged = (
        directory / f"alone-{name}" for name in ("upper", "work", "merged")
    )
    for each in (upper, work, merged):
        each.mkdir()
    os.chown(upper, 1000, 1000)
    overlay.mount([workspace], upper, work, merged)
    try:
        return {
            name: f"overlayfs alone {_alone(command, workspace, merged)}"
            for name, command in COMMANDS.items()
        }
    finally:
        unmount(merged)


def _alone(command: str, *places: Path) -> str:
    times: dict[Path, list[float]] = {place: [] for place in places}
    used: dict[Path, list[float]] = {place: [] for place in places}
    for round in range(ROUNDS + 1):
        for place in places:
            begun, before = time.perf_counter(), _cpu()
            subprocess.run(
                ["setpriv", *AS_OWNER, "sh", "-c", command],
                cwd=place,
                env=ENV,
                stdout=subprocess.DEVNULL,
            )
            if round:
                times[place].append(time.perf_counter() - begun)
                used[place].append(_cpu() - before)
    plain, merged = places
    return _ratios(times[merged], times[plain], used[merged], used[plain])


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ratios(
    ours: list[float], theirs: list[float], our_cpu: list[float], their_cpu: list[float]
) -> str:
    """Ratios of wall-clock time and of processor time; the latter does not change on a busy machine."""
    return f"{p50(ours) / p50(theirs):.2f} (cpu {p50(our_cpu) / p50(their_cpu):.2f})"


async def commands(
    direct: Session, staged: Session, alone: dict[str, str]
) -> list[Row]:
    rows = []
    for name, command in COMMANDS.items():
        await direct.run(command), await staged.run(command)
        found = [
            (await staged.run(command), await direct.run(command))
            for _ in range(ROUNDS)
        ]
        ours, theirs = ([pair[side].duration for pair in found] for side in (0, 1))
        our_cpu, their_cpu = (
            [pair[side].cpu_time for pair in found] for side in (0, 1)
        )
        baseline = f"direct {ms(p50(theirs))}" + (
            f", {alone[name]}" if alone[name] else ""
        )
        ratios = _ratios(ours, theirs, our_cpu, their_cpu)
        rows.append(
            Row(
                name,
                ms(p50(ours)),
                baseline,
                ratios,
                "<= 1.1",
                p50(ours) / p50(theirs) <= 1.1,
            )
        )
    return rows


def git_diff(box: Session, workspace: Path) -> float:
    """Of the same files, directory by directory: the upper layer holds nothing else."""
    upper = hosts.default().staged_root / box.id / "upper" / "src"
    git = ["git", "diff", "--no-index", "--"]

    def all_of_them() -> None:
        for each in upper.iterdir():
            theirs = [*git, str(workspace / "src" / each.name), str(each)]
            subprocess.run(theirs, stdout=subprocess.DEVNULL)

    return timed(all_of_them)


async def looking(box: Session, workspace: Path) -> list[Row]:
    await box.discard()
    await box.run(f"for n in $(seq {CHANGED}); do echo x >> src/d$n/f1.py; done")
    look = p50([await timed_async(box.changes) for _ in range(ROUNDS)])
    assert counted(await box.changes()) == f"~{CHANGED}"
    await box.run(
        f"for d in $(ls -d src/d*/ | head -{MANY // 500}); do for f in $d*.py; do echo x >> $f; done; done"
    )
    listed = p50([await timed_async(box.changes) for _ in range(ROUNDS)])
    many = len(await box.changes())
    assert many >= MANY
    diffs = [await timed_async(box.diff) for _ in range(DIFFS)]
    theirs = [git_diff(box, workspace) for _ in range(DIFFS)]
    diff, compared = p50(diffs) * DIFFED / many, p50(diffs) / p50(theirs)
    applied, undone = await timed_async(box.apply), await timed_async(box.undo_apply)
    most = 2.0 * many / 10_000
    points = [await timed_async(lambda: box.checkpoint()) for _ in range(POINTS)]
    return [
        Row(
            f"changes(), {CHANGED} of {FILES:,} files",
            ms(look),
            "",
            "",
            "<= 20 ms",
            look <= 0.020,
        ),
        Row(
            f"changes() of {many:,}",
            ms(listed),
            "",
            "",
            "<= 500 ms",
            listed <= 0.5,
        ),
        Row(
            f"diff() of {DIFFED:,} files",
            ms(diff),
            f"of {many:,}; git diff --no-index {ms(p50(theirs) * DIFFED / many)}",
            f"{compared:.2f}",
            "<= 1 s, <= 1.0",
            diff <= 1.0 and compared <= 1.0,
        ),
        Row(
            f"apply() of {many:,} files",
            ms(applied),
            "",
            f"undone {ms(undone)}",
            f"<= {ms(most)}",
            applied <= most,
        ),
        Row(
            f"checkpoint with {many:,} changes",
            ms(p50(points)),
            "",
            "",
            "<= 50 ms",
            p50(points) <= 0.050,
        ),
    ]


async def rows(directory: Path) -> list[Row]:
    workspace = directory / "staged"
    workspace.mkdir()
    fill(workspace)
    found = await opening(workspace)
    alone = await to_thread.run_sync(overlayfs_alone, workspace, directory)
    async with (
        Session(workspace) as direct,
        Session(workspace, changes="staged") as staged,
    ):
        found += await commands(direct, staged, alone)
        found += await looking(staged, workspace)
        await staged.discard()
    return found
