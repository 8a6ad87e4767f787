"""`belljar run`: runs one command, shows its output and exits with its status.

A quick command spends most of its time on two things: the engine starts a container, and Python imports modules. They
happen at the same time: the launch starts in a thread as soon as the options are read, and while that waits for the
engine, the main thread imports the rest.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from belljar import host
from belljar.surfaces.cli import afterwards, ci_report, early_launch
from belljar.surfaces.cli.arguments import options_of
from belljar.surfaces.cli.early_launch import EarlyLaunch
from belljar.surfaces.cli.pending import continuing
from belljar.surfaces.cli.signals import SignalGate, interrupts_delayed
from belljar.surfaces.cli.streams import Streams


def run(args: Namespace) -> int:
    report = ci_report.Report(
        args
    )  # fails before anything is started if the file cannot be written
    _take_devcontainer(args)
    gate = SignalGate()
    if args.resident and not early_launch.is_served():
        afterwards.later(_start_server)
    streams = Streams.of(args)
    keepable = streams.pty and streams.terminal is not None  # the user may detach
    early = None
    if not args.session and host.far_of(None) is None:
        early = EarlyLaunch(
            options_of(args, keepable=keepable, **continuing(args)), args.cwd
        )
    try:
        with interrupts_delayed():
            if early is not None:
                early.start()
            from belljar.surfaces.cli.foreground import run_and_show

        return run_and_show(args, report, early, gate, streams)
    finally:
        if early is not None:
            early.discard()


def _take_devcontainer(args: Namespace) -> None:
    if args.devcontainer:
        from belljar.surfaces.cli import devcontainer

        devcontainer.prepare(args)


def _start_server() -> None:
    """The local server, for the next command. If one runs, this ends at once."""
    import subprocess

    argv = [sys.executable, "-P", "-m", "belljar", "serve", "--local", "--detach"]
    null = subprocess.DEVNULL
    subprocess.run(argv, cwd="/", stdin=null, stdout=null, stderr=null, check=False)
