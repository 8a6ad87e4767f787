"""For CI: reports as JSON and JUnit, GitHub's annotations and summary, and why a command was stopped."""

from __future__ import annotations

import json
import os
import shlex
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


class _Target:
    """A file that a report is written to. It is opened before any command can move its directory."""

    def __init__(self, option: str, path: str, args: Namespace) -> None:
        self._option, self._path = option, path
        self._folder, self._name = _place(option, path, args)

    def write(self, content: bytes) -> None:
        try:
            self._folder.write(self._name, content, 0o644)
        except OSError as error:
            raise UsageError(f"{self._option} {self._path}: {error.strerror}") from None


class Report:
    """`--report`, `--report-junit`: the command, the verdict, how it ended and what it used; without its output."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self._json = _Target("--report", args.report, args) if args.report else None
        self._junit = (
            _Target("--report-junit", args.report_junit, args)
            if args.report_junit
            else None
        )
        self._write(
            {"cause": None}
        )  # fails before anything runs if a file cannot be written

    def ended(self, result: Result, box: Session) -> None:
        message = unusual_end(result, self._args)
        if self._json or self._junit:
            self._write(_facts(result, box), message or "")
        if message:
            annotate("Command was stopped", message)
        self._summarize(
            message or f"exit status {result.exit_code}", f"{result.duration:.1f} s"
        )

    def failed(self, error: BelljarError) -> None:
        cause = (
            "denied" if isinstance(error, PolicyDenied) else None
        )  # 126 is also a program's own
        self._write(
            {"cause": cause, "exit_code": error.exit_status, **error.as_dict()},
            str(error),
        )
        title = (
            "Command was denied"
            if isinstance(error, PolicyDenied)
            else "Command did not run"
        )
        annotate(title, str(error))
        self._summarize(f"{title.removeprefix('Command ')}: {error}", "–")

    def _write(self, facts: dict[str, Any], message: str = "") -> None:
        if self._json is None and self._junit is None:
            return
        from belljar.audit import masking

        request = {
            "command": self._args.command,
            "policy": self._args.policy,
            "image": self._args.image,
        }
        told = masking.value({**request, **facts})
        if self._json is not None:
            self._json.write(f"{json.dumps(told, indent=2, default=str)}\n".encode())
        if self._junit is not None:
            self._junit.write(_junit(told, masking.text(message)))

    def _summarize(self, outcome: str, took: str) -> None:
        """A line of the page that GitHub shows for the job."""
        path = os.environ.get("GITHUB_STEP_SUMMARY", "")
        if os.environ.get("GITHUB_ACTIONS") != "true" or not path:
            return
        from belljar.audit import masking

        cells = [
            _cell(masking.text(text))
            for text in (_words(self._args.command), outcome, took)
        ]
        with suppress(OSError), open(path, "a") as page:
            page.write(
                f"| `belljar run` | outcome | time |\n|---|---|---|\n| {' | '.join(cells)} |\n\n"
            )


def _facts(result: Result, box: Session) -> dict[str, Any]:
    facts = {
        name: value for name, value in result.as_dict().items() if name not in _OUTPUT
    }
    return {
        **facts,
        "hints": list(result.hints_for("cli")),
        "session": box.id,
        "limits": box.limits.as_dict(),
        "network_mode": box.network,
        "allow": list(box.allow.hosts) if box.allow else [],
    }


def _words(command: Any) -> str:
    return command if isinstance(command, str) else shlex.join(command)


def _cell(text: str) -> str:
    """Plain text in a table: what Markdown or HTML would make of it is escaped."""
    line = " ".join(text.split())[:300]
    return "".join(
        f"&#{ord(each)};" if not each.isalnum() and each not in " .,:/–-" else each
        for each in line
    )


def _junit(told: dict[str, Any], message: str) -> bytes:
    """One test: the command. It fails with a status other than 0, and is an error if it did not run to its end."""
    from xml.etree import ElementTree

    cause, status = told["cause"], told.get("exit_code", 0)
    state = (
        "error"
        if cause not in ("exited", "signalled")
        else "failure"
        if status
        else None
    )
    suite = ElementTree.Element(
        "testsuite",
        name="belljar run",
        tests="1",
        errors=str(int(state == "error")),
        failures=str(int(state == "failure")),
        time=f"{told.get('duration', 0):.3f}",
    )
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"belljar.{told['policy']}",
        name=_printable(_words(told["command"])),
        time=suite.get("time", "0"),
    )
    if state:
        why = _printable(
            message
            or ("it has not ended" if cause is None else f"exit status {status}")
        )
        ElementTree.SubElement(
            case, state, type=str(cause or told.get("error", "failed")), message=why
        )
    return (
        bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
        + b"\n"
    )


def _printable(text: str) -> str:
    """XML has no other control characters, and no halves of surrogate pairs."""
    return "".join(
        each if each >= " " and not "\ud800" <= each <= "\udfff" else "\ufffd"
        for each in text
    )


def _place(option: str, path: str, args: Namespace) -> tuple[Folder, str]:
    """A report's directory, opened before any command can move it, and its name there.

    Links below the workspace are not followed: a repository or a command may have created them.
    """
    with ExitStack() as opened:
        top: Folder | None = None
        with suppress(OSError):  # if there is no workspace, the launch reports it
            top = opened.enter_context(Folder.at(_workspace(args)))
        from belljar.session.host_paths import (
            HostPath,
        )  # imported here: `run` launches before it imports `session`

        try:
            where, name = HostPath(path, top.descriptor if top else None).above()
            folder = Folder.of(opened.enter_context(where.folder()).descriptor)
            if folder.exists(name) and not stat.S_ISREG(folder.stat(name).st_mode):
                raise UsageError(f"{path}: this exists and is not a regular file")
        except OSError as error:
            raise UsageError(f"{option} {path}: {error.strerror}") from None
        except UsageError as error:
            raise UsageError(f"{option} {error}") from None
    return folder, name


def _workspace(args: Namespace) -> str:
    """The workspace of the named session, whose commands can write there; otherwise the given one."""
    about = (
        rundir.read_session(default().run_root / names.session(args.session))
        if args.session
        else None
    )
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
        sys.stderr.write(
            f"::error title={_escaped(title, ':,')}::{_escaped(masking.text(message))}\n"
        )
        sys.stderr.flush()


def _escaped(text: str, also: str = "") -> str:
    for character in "%\r\n" + also:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
