"""`belljar setup-user NAME`: what only root can give an ordinary user whose sandboxes shall need no daemon.

Subordinate ids, and a control group (or systemd's delegation) for limits. If the operator gives the user a quota, its
memory and cpus become limits of that group, which only root can change: they hold for whatever he starts there, with
Belljar or without. All of it is commands and small files, shown
before anything is done; how to undo them is noted in /var/lib/belljar, for `--remove`.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from belljar import enforcement, user_namespace
from belljar.engines.oci import cgroups
from belljar.engines.oci.config import CPU_PERIOD
from belljar.errors import BelljarError, UsageError
from belljar.records import record
from belljar.surfaces.cli import console

NOTES = Path("/var/lib/belljar/setup-user")
PROGRAMS = {
    "newuidmap": "uidmap",
    "newgidmap": "uidmap",
    "usermod": "passwd",
    "nsenter": "util-linux",
    "runc": "runc",
}
SYSTEMD = Path("/run/systemd/system")
DELEGATE = "[Service]\nDelegate=cpu cpuset io memory pids\n"

Argv = list[str]


@record
class Step:
    why: str
    do: list[Argv]
    undo: list[Argv]
    file: str = ""
    text: str = ""
    """What is written to the file, before the commands."""


def command(args: Namespace) -> int:
    user = _user(args.name)
    notes = NOTES / f"{user.pw_name}.json"
    if args.remove:
        return _remove(args, notes)
    if missing := sorted(
        {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    ):
        raise UsageError(
            f"first install what this needs: `apt-get install {' '.join(missing)}`"
        )
    steps = list(plan(user))
    if steps and not _agreed(args, [line for step in steps for line in _shown(step)]):
        return 1
    undo: list[Argv] = json.loads(notes.read_text()) if notes.exists() else []
    for step in steps:
        undo = step.undo + undo
        _note(notes, undo)  # first: whatever is cut off can be undone
        _carry_out(step)
    if left := [step.why for step in plan(user)]:
        raise BelljarError(
            f"{user.pw_name} is not set up: {', '.join(left)} did not last"
        )
    done = [step.why for step in steps]
    words = (
        f"{user.pw_name} is set up" if steps else f"{user.pw_name} was set up already"
    )
    return console.answer(
        args,
        {"user": user.pw_name, "done": done},
        f"{words}; as that user: belljar doctor --engine oci",
    )


def plan(user: pwd.struct_passwd) -> Iterator[Step]:
    """What is still to be done."""
    start = user_namespace.free_range()
    span = f"{start}-{start + user_namespace.COUNT - 1}"
    for kind in user_namespace.lacking(user.pw_name, user.pw_uid):
        add, remove = (
            ["usermod", f"--{verb}-{kind}s", span, user.pw_name]
            for verb in ("add", "del")
        )
        yield Step(f"{user_namespace.COUNT} ids in /etc/{kind}", [add], [remove])
    if cgroups.version() == "2":
        yield from _by_systemd(user)
    else:
        yield from _by_groups(user)


def _by_systemd(user: pwd.struct_passwd) -> Iterator[Step]:
    if not SYSTEMD.is_dir():
        raise UsageError(
            "no systemd runs here, and control groups version 2 can be delegated only by it"
        )
    file = Path(f"/etc/systemd/system/user@{user.pw_uid}.service.d/belljar.conf")
    reload = ["systemctl", "daemon-reload"]
    text = DELEGATE + _systemd_limits(user.pw_uid)
    if not file.exists() or file.read_text() != text:
        yield Step(
            "control groups from systemd",
            [reload],
            [["rm", "-f", str(file)], reload],
            str(file),
            text,
        )
    if not Path("/var/lib/systemd/linger", user.pw_name).exists():
        enable, disable = (
            ["loginctl", f"{verb}-linger", user.pw_name]
            for verb in ("enable", "disable")
        )
        yield Step(
            "a systemd of the user's own, also while nobody is logged in",
            [enable],
            [disable],
        )


def _by_groups(user: pwd.struct_passwd) -> Iterator[Step]:
    made = cgroups.places_for(user.pw_uid)
    if any(
        not os.path.isdir(path) or os.stat(path).st_uid != user.pw_uid for path in made
    ):
        owner = f"{user.pw_uid}:{user.pw_gid}"
        yield Step(
            "control groups",
            [["mkdir", "-p", *made], ["chown", "-R", owner, *made]],
            [["rmdir", *made]],
        )
    limits = _group_limits(user.pw_uid)
    for limit, amount in limits.items():
        if not _has_limit(limit, amount):
            yield Step(
                f"the quota: {Path(limit).name} {amount}",
                [
                    ["chown", "root:root", limit],
                    ["sh", "-c", f"echo {amount} > {shlex.quote(limit)}"],
                ],
                [],
            )
    file = Path("/etc/tmpfiles.d", f"belljar-{user.pw_name}.conf")
    names = f"{user.pw_uid} {user.pw_gid}"
    text = "".join(f"d {path} 0755 {names}\nZ {path} - {names}\n" for path in made)
    text += "".join(
        f"z {limit} 0644 root root\nw {limit} - - - - {amount}\n"
        for limit, amount in limits.items()
    )
    if SYSTEMD.is_dir() and (not file.exists() or file.read_text() != text):
        yield Step(
            "control groups after a restart",
            [],
            [["rm", "-f", str(file)]],
            str(file),
            text,
        )


def _systemd_limits(uid: int) -> str:
    """Of all that his systemd runs."""
    quota = enforcement.quota(uid)
    lines = {"memory": "MemoryMax={:.0f}", "cpus": "CPUQuota={:.0%}"}
    return "".join(
        f"{line.format(quota[name])}\n" for name, line in lines.items() if name in quota
    )


def _group_limits(uid: int) -> dict[str, int]:
    """File of the kernel's → what it is to say. Without a quota that root once set: no limit."""
    quota = enforcement.quota(uid)
    wanted = {
        "memory.limit_in_bytes": int(quota.get("memory", -1)),
        "cpu.cfs_quota_us": int(quota.get("cpus", -1) * CPU_PERIOD)
        if "cpus" in quota
        else -1,
    }
    found = {
        f"{group}/{name}": amount
        for group in cgroups.places_for(uid)
        for name, amount in wanted.items()
        if Path(group).parent.name.split(",")[0] == name.partition(".")[0]
    }
    return {
        path: amount
        for path, amount in found.items()
        if amount >= 0 or (os.path.exists(path) and not _has_limit(path, -1))
    }


def _has_limit(path: str, amount: int) -> bool:
    """Whether it says so, and only root can change it. The kernel counts memory in pages."""
    try:
        now, owner = int(Path(path).read_text()), os.stat(path).st_uid
    except OSError:
        return False
    page = os.sysconf("SC_PAGE_SIZE")
    if amount < 0:
        return now < 0 or now > 1 << 60
    is_memory = path.endswith("bytes")
    return owner == 0 and now == (amount // page * page if is_memory else amount)


def _user(name: str) -> pwd.struct_passwd:
    if os.geteuid() != 0:
        raise UsageError(
            f"only root can do this: `sudo {sys.argv[0]} setup-user {shlex.quote(name)}`"
        )
    try:
        user = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"there is no user {name!r}") from None
    if user.pw_uid == 0:
        raise UsageError("root needs none of this")
    return user


def _shown(step: Step) -> Iterator[str]:
    yield f"{step.why}:"
    if step.file:
        yield f"  write {step.file}: {' '.join(step.text.split())}"
    yield from (f"  {shlex.join(argv)}" for argv in step.do)


def _agreed(args: Namespace, lines: list[str]) -> bool:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("nothing was changed: nobody can be asked here; --yes agrees")
    sys.stderr.write("do this? [y]es / [n]o: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _carry_out(step: Step) -> None:
    if step.file:
        Path(step.file).parent.mkdir(parents=True, exist_ok=True)
        Path(step.file).write_text(step.text)
    for argv in step.do:
        ran = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if ran.returncode != 0:
            raise BelljarError(
                f"{shlex.join(argv)}: {ran.stderr.strip() or ran.returncode}; "
                "are there sandboxes of his that have more (`belljar ps --all`)? --remove undoes the rest"
            )


def _note(notes: Path, undo: list[Argv]) -> None:
    notes.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = notes.with_suffix(".new")
    new.write_text(json.dumps(undo))
    new.rename(notes)


def _remove(args: Namespace, notes: Path) -> int:
    if not notes.exists():
        raise UsageError(f"nothing was set up for {args.name}")
    undo: list[Argv] = json.loads(notes.read_text())
    if not _agreed(args, [shlex.join(argv) for argv in undo]):
        return 1
    failed = []
    for argv in undo:
        ran = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        failed += (
            [] if ran.returncode == 0 else [f"{shlex.join(argv)}: {ran.stderr.strip()}"]
        )
    if failed:
        raise BelljarError(
            f"not undone (are there sandboxes left? `belljar prune` as that user): {'; '.join(failed)}"
        )
    notes.unlink()
    return console.answer(
        args,
        {"user": args.name, "done": [shlex.join(argv) for argv in undo]},
        f"undone for {args.name}",
    )
