"""For CI: the report file, annotations of GitHub Actions, and the messages for a command that was stopped."""

from __future__ import annotations

import json
import os
import stat
import sys
from argparse import Namespace
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from belljar.errors import BelljarError, PolicyDenied, UsageError
from belljar.host import default
from belljar.sandbox import rundir
from belljar.surfaces.cli import names
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.session.result import Result
    from belljar.session.session import Session

_OUTPUT = ("stdout", "stderr", "output")


class Report:
    """`--report FILE`: the command, the verdict, how it ended and what it used; without its output."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self._folder: Folder | None = None
        if args.report:
            self._folder, self._name = _place(args)
            self._write({"cause": None})  # fails before anything runs if the file cannot be written

    def ended(self, result: Result, box: Session) -> None:
        facts = {name: value for name, value in result.as_dict().items() if name not in _OUTPUT}
        facts["hints"] = list(result.hints_for("cli"))
        network = {"network_mode": box.network, "allow": list(box.allow.hosts) if box.allow else []}
        self._write({**facts, "session": box.id, "limits": box.limits.as_dict(), **network})
        if message := unusual_end(result, self._args):
            annotate("Command was stopped", message)

    def failed(self, error: BelljarError) -> None:
        cause = "denied" if isinstance(error, PolicyDenied) else None  # 126 is also a program's own
        self._write({"cause": cause, "exit_code": error.exit_status, **error.as_dict()})
        title = "Command was denied" if isinstance(error, PolicyDenied) else "Command did not run"
        annotate(title, str(error))

    def _write(self, facts: dict[str, Any]) -> None:
        if self._folder is None:
            return
        from belljar.audit import masking

        request = {"command": self._args.command, "policy": self._args.policy, "image": self._args.image}
        text = json.dumps(masking.value({**request, **facts}), indent=2, default=str)
        try:
            self._folder.write(self._name, f"{text}\n".encode(), 0o644)
        except OSError as error:
            raise UsageError(f"--report {self._args.report}: {error.strerror}") from None


def _place(args: Namespace) -> tuple[Folder, str]:
    """The report's directory, opened before any command can move it, and its name there.

    Links below the workspace are not followed: a repository or a command may have created them.
    """
    with ExitStack() as opened:
        top: Folder | None = None
        with suppress(OSError):  # if there is no workspace, the launch reports it
            top = opened.enter_context(Folder.at(_workspace(args)))
        from belljar.session.host_paths import HostPath  # imported here: `run` launches before it imports `session`

        try:
            where, name = HostPath(args.report, top.descriptor if top else None).above()
            folder = Folder.of(opened.enter_context(where.folder()).descriptor)
            if folder.exists(name) and not stat.S_ISREG(folder.stat(name).st_mode):
                raise UsageError(f"{args.report}: this exists and is not a regular file")
        except OSError as error:
            raise UsageError(f"--report {args.report}: {error.strerror}") from None
        except UsageError as error:
            raise UsageError(f"--report {error}") from None
    return folder, name


def _workspace(args: Namespace) -> str:
    """The workspace of the named session, whose commands can write there; otherwise the given one."""
    about = rundir.read_session(default().run_root / names.session(args.session)) if args.session else None
    return str(about["options"]["workspace"]) if about else str(args.workspace)


def unusual_end(result: Result, args: Namespace) -> str | None:
    """Why a command was stopped; None if it ended by itself."""
    reasons = {
        "timeout": f"timed out after {args.timeout or 0:g} s and was killed (allow more with --timeout)",
        "out_of_memory": "killed: out of memory (allow more with --memory)",
        "output_limit": "killed: it printed more than the output limit allows",
        "sandbox_lost": "the sandbox was lost while the command ran (run `belljar doctor` to find out why)",
        "killed": "killed",
    }
    return reasons.get(result.cause)


def annotate(title: str, message: str) -> None:
    """Annotate the workflow run. On stderr, which the runner reads too: stdout belongs to the command."""
    from belljar.audit import masking

    if os.environ.get("GITHUB_ACTIONS") == "true" and sys.stderr is not None:
        sys.stderr.write(f"::error title={_escaped(title, ':,')}::{_escaped(masking.text(message))}\n")
        sys.stderr.flush()


def _escaped(text: str, also: str = "") -> str:
    for character in "%\r\n" + also:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
