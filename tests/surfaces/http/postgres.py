"""A PostgreSQL of our own: Debian's programs, a cluster in a temporary directory, an unprivileged user."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    named = shutil.which("initdb")
    return Path(named).resolve().parent if named else None


def _as_user(directory: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid():
        return []
    user = next(
        (
            one
            for one in ("postgres", "nobody")
            if one in {each.pw_name for each in pwd.getpwall()}
        ),
        None,
    )
    if user is None:
        pytest.skip("no unprivileged user to run PostgreSQL as")
    shutil.chown(directory, user)
    group = pwd.getpwnam(user).pw_gid
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]


@contextlib.contextmanager
def postgres(address: str = "127.0.0.1") -> Iterator[str]:
    """The URL of an empty database. At another address than the loopback's everybody may use it who gets there."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    directory = tempfile.mkdtemp(prefix="bj-pg-", dir="/tmp")
    prefix = _as_user(directory)
    with socket.create_server((address, 0)) as free:
        port = free.getsockname()[1]
    data = f"{directory}/data"

    def quietly(*command: str) -> None:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        subprocess.run(
            [*prefix, *command],
            check=True,
            capture_output=True,
            cwd="/",
            env=environment,
        )

    try:
        quietly(
            str(programs / "initdb"),
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "belljar",
            "--no-sync",
            "-E",
            "UTF8",
        )
        with open(f"{data}/pg_hba.conf", "a") as rules:
            rules.write("host all all 0.0.0.0/0 trust\n" * (address != "127.0.0.1"))
        options = f"-p {port} -k {directory} -c listen_addresses={address} -c fsync=off"
        control = [str(programs / "pg_ctl"), "-D", data, "-w"]
        quietly(*control, "-l", f"{directory}/log", "-o", options, "start")
        try:
            yield f"postgresql://belljar@{address}:{port}/postgres"
        finally:
            quietly(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
