"""Sets a checkout up, for `make`: `python3 -B sandbox-images/setup [--venv DIR] run|test|engine|images|compiler…`.

Uses only the standard library, since nothing else is installed yet. Steps that are done already print nothing;
independent steps run in parallel. Their output goes to VENV/.belljar/setup.log. A step is marked as done only after it
succeeded, so an interrupted set-up continues where it stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import steps
from board import Board, Plan, SetupError
from checkout import Checkout

INTERRUPTED = 130


def main() -> int:
    arguments = _arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    os.umask(
        0o022
    )  # others must be able to read the venv: programs of it run as subordinate ids
    board = Board(sys.stderr)
    try:
        with Checkout(arguments.venv, board) as checkout:
            _plan(arguments.wanted, checkout).carry_out(board)
        return 0
    except SetupError as error:
        board.failed(error)
        return 1
    except KeyboardInterrupt:
        board.close(
            "interrupted. Run the same command again: it goes on where it stopped."
        )
        return INTERRUPTED


def _plan(wanted: list[str], checkout: Checkout) -> Plan:
    """The steps, and which others each waits for."""
    plan = Plan()
    packages = {"run", "test", "compiler", "images"} & set(wanted)
    if packages:
        kind = "test" if "test" in wanted else "run"
        plan.add("environment", lambda report: steps.environment(checkout, report))
        plan.add(
            "packages",
            lambda report: steps.packages(checkout, kind, report),
            after=["environment"],
        )
        plan.add(
            "init", lambda report: steps.init(checkout, report), after=["packages"]
        )
        plan.add(
            "policies",
            lambda report: steps.policies(checkout, report),
            after=["packages"],
        )
        if "compiler" in wanted:
            plan.add(
                "compiler",
                lambda report: steps.compiler(checkout, report),
                after=["init"],
            )
    if {"engine", "images"} & set(wanted):
        daemon = "engine" in wanted
        plan.add("engine", lambda report: steps.engine(checkout, report, daemon=daemon))
    if "images" in wanted:
        plan.add(
            "base image",
            lambda report: steps.image(checkout, report),
            after=["packages", "engine"],
        )
    return plan


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sandbox-images/setup", description=__doc__)
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument(
        "wanted", nargs="+", choices=["run", "test", "engine", "images", "compiler"]
    )
    return parser.parse_args()


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
