"""OpenHands SDK: a workspace that is a sandbox, and the tools that really run inside.

    from belljar.adapters.openhands import BelljarWorkspace, belljar_tools
    from openhands.sdk import Agent, Conversation

    agent = Agent(llm=llm, tools=belljar_tools())
    with BelljarWorkspace(image="base", limits={"memory": "1g"}) as workspace:
        conversation = Conversation(agent=agent, workspace=workspace)
        conversation.send_message("Which files are here?")
        conversation.run()
        listing = workspace.execute_command("ls")

A workspace alone would leave OpenHands' own tools on this machine. So `terminal` and `file_editor` are replaced: with
this workspace they work in the sandbox, also if an agent names them itself; others that would work on this machine's
files (`grep`, `glob`, the browser …) are refused beside them.

OpenHands loads plugins and hooks, which it runs on this machine, from the workspace's `working_dir`. So no sandbox may
write there: without `working_dir` it is an empty directory, and one that you name is a staged workspace, whose changes
wait for `workspace.apply()`. `workspace=DIR` instead mounts a directory as it is, where OpenHands does not look.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from openhands.sdk.git.exceptions import (
    GitCommandError,
    GitPathError,
    GitRepositoryError,
)
from openhands.sdk.git.models import GitChange, GitChangeStatus, GitDiff
from openhands.sdk.tool import Tool, register_tool
from openhands.sdk.workspace import LocalWorkspace
from openhands.sdk.workspace.models import CommandResult, FileOperationResult
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.file_editor.definition import (
    FileEditorAction,
    FileEditorObservation,
)
from openhands.tools.file_editor.impl import FileEditorExecutor
from openhands.tools.terminal import TerminalTool
from openhands.tools.terminal.constants import (
    NO_CHANGE_TIMEOUT_SECONDS,
    TIMEOUT_MESSAGE_TEMPLATE,
)
from openhands.tools.terminal.definition import TerminalAction, TerminalObservation
from openhands.tools.terminal.impl import TerminalExecutor
from openhands.tools.terminal.metadata import CmdOutputMetadata
from openhands.tools.terminal.terminal.interface import parse_ctrl_key
from openhands.tools.terminal.timeout_policy import foreground_timeout_rejection_for
from openhands.tools.terminal.utils.command import split_bash_commands
from pydantic import ConfigDict, Field, PrivateAttr

import belljar
from belljar.adapters import boxes
from belljar.adapters.terminals import INTERRUPT, Seen, Terminal
from belljar.errors import CommandError, UsageError
from belljar.host import default
from belljar.layout import WORKSPACE
from belljar.sync.loop import Loop

KEYS = {
    "ENTER": "\n",
    "TAB": "\t",
    "BS": "\x7f",
    "ESC": "\x1b",
    "UP": "\x1b[A",
    "DOWN": "\x1b[B",
    "RIGHT": "\x1b[C",
    "LEFT": "\x1b[D",
    "HOME": "\x1b[H",
    "END": "\x1b[F",
    "PGUP": "\x1b[5~",
    "PGDN": "\x1b[6~",
}
"""What OpenHands' names of keys send."""
FACTS = 'id -un; hostname; command -v python3 || echo ""'
STATUSES = {
    "A": GitChangeStatus.ADDED,
    "?": GitChangeStatus.ADDED,
    "D": GitChangeStatus.DELETED,
}


ON_THE_HOST = frozenset(
    [
        "apply_patch",
        "browser_tool_set",
        "edit",
        "glob",
        "grep",
        "list_directory",
        "planning_file_editor",
        "read_file",
        "write_file",
    ]
)
"""OpenHands' tools that read or write files of this machine, or reach its network."""


class BelljarWorkspace(LocalWorkspace):
    """Besides `working_dir`, what `belljar.Session` takes. The sandbox starts with the first use, and ends with `close`
    or the `with` block."""

    model_config = ConfigDict(extra="allow")
    host: Any = Field(default=None, exclude=True)
    _live: dict[str, Any] = PrivateAttr(default_factory=dict)
    _box: Any = PrivateAttr(default=None)
    _loop: Any = PrivateAttr(default=None)
    _end: Any = PrivateAttr(default=None)
    _is_empty: bool = PrivateAttr(default=False)
    _is_closed: bool = PrivateAttr(default=False)

    def __init__(
        self, *, working_dir: str | Path | None = None, **options: Any
    ) -> None:
        live = {name: options.pop(name) for name in boxes.LIVE if name in options}
        data = {
            name: boxes.plain(value)
            for name, value in options.items()
            if name != "host"
        }
        boxes.options_of(
            {name: value for name, value in data.items() if name != "kind"}
        )  # raises for a wrong name
        super().__init__(
            working_dir=_place(working_dir), host=options.get("host"), **data
        )
        self._live = live
        self._is_empty = working_dir is None or _is_in_the_sandbox(working_dir)
        if working_dir is None:
            weakref.finalize(self, shutil.rmtree, self.working_dir, ignore_errors=True)

    @property
    def options(self) -> dict[str, Any]:
        """Of the sandbox."""
        return {
            name: value
            for name, value in (self.model_extra or {}).items()
            if name != "kind"
        }

    @property
    def box(self) -> Any:
        """The `belljar.Session`; it belongs to another thread: `workspace.call(workspace.box.usage)`."""
        if self._is_closed:
            raise belljar.SandboxLost("this workspace is closed; make a new one")
        if self._box is None:
            self._loop = Loop(default())
            options = {**self.options, **self._live, "host": self.host}
            if not self._is_empty:
                here = self.working_dir
                options = {"changes": "staged", **options, "workspace": here}
            self._box, home = self._loop.call(boxes.entered, boxes.opened, **options)
            self._end = weakref.finalize(
                self, boxes.close_from_anywhere, self._box, home
            )
        return self._box

    @property
    def is_open(self) -> bool:
        return self._box is not None

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call an asynchronous function of the session: `workspace.call(workspace.box.changes)`."""
        assert self.box is not None
        return self._loop.call(function, *arguments, **options)

    def apply(self, paths: list[str] | None = None) -> Any:
        """Apply the staged changes to `working_dir`."""
        return self.call(self.box.apply, paths)

    def close(self) -> None:
        if self._end is not None:
            self._end()
            self._box = self._end = None
        self._is_closed = True

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        try:
            super().__exit__(exc_type, exc_val, exc_tb)
        finally:
            self.close()

    def inside(self, path: str | Path | None) -> str:
        """A path in the sandbox. `working_dir` is /workspace there."""
        text = posixpath.normpath(posixpath.join(WORKSPACE, os.fspath(path or "")))
        below = os.path.relpath(text, self.working_dir)
        return (
            text
            if below.split("/")[0] == ".."
            else posixpath.normpath(posixpath.join(WORKSPACE, below))
        )

    # What OpenHands calls.

    def execute_command(
        self, command: str, cwd: str | Path | None = None, timeout: float = 30.0
    ) -> CommandResult:
        try:
            result = self.call(
                self.box.run, command, cwd=self.inside(cwd), timeout=timeout
            )
        except (belljar.PolicyDenied, CommandError, UsageError) as error:
            return _outcome(command, error.exit_status, "", f"{boxes.reason(error)}\n")
        if boxes.there(result).cause == "timeout":
            why = f"{result.stderr}Command timed out after {timeout} seconds"
            return _outcome(command, -1, result.stdout, why, timed_out=True)
        return _outcome(command, result.exit_code, result.stdout, result.stderr)

    def file_upload(
        self, source_path: str | Path, destination_path: str | Path
    ) -> FileOperationResult:
        target = self.inside(destination_path)
        copy = partial(self.box.files.upload, source_path, target)
        return self._copied(copy, source_path, destination_path, here=source_path)

    def file_download(
        self, source_path: str | Path, destination_path: str | Path
    ) -> FileOperationResult:
        Path(destination_path).parent.mkdir(parents=True, exist_ok=True)
        source = self.inside(source_path)
        copy = partial(self.box.files.download, source, destination_path, links=False)
        return self._copied(copy, source_path, destination_path, here=destination_path)

    def _copied(
        self, copy: Any, source: Any, target: Any, *, here: str | Path
    ) -> FileOperationResult:
        result = FileOperationResult(
            success=False, source_path=str(source), destination_path=str(target)
        )
        try:
            self.call(copy)
            size = os.path.getsize(here) if os.path.isfile(here) else None
        except (belljar.BelljarError, OSError) as error:
            return result.model_copy(update={"error": str(error)})
        return result.model_copy(update={"success": True, "file_size": size})

    def git_changes(self, path: str | Path) -> list[GitChange]:
        """What differs from the last commit."""
        listed = self._git(
            path,
            "status",
            "--porcelain",
            "-z",
            "--no-renames",
            "--untracked-files=all",
            "--",
            ".",
        )
        records = [record for record in listed.split("\0") if record]
        changes = [(_status(record[:2]), Path(record[3:])) for record in records]
        return [
            GitChange(status=status, path=name)
            for status, name in sorted(changes, key=lambda one: str(one[1]))
        ]

    def git_diff(self, path: str | Path) -> GitDiff:
        """The file as it is, and as the last commit has it; what is not there is empty, as in OpenHands' own."""
        folder, name = posixpath.split(self.inside(path))
        self._git(folder, "rev-parse", "--git-dir")
        modified, original = self._text(path), None
        with contextlib.suppress(GitCommandError):
            original = self._git(folder, "show", f"HEAD:./{name}")
        if modified is None and original is None:
            raise GitPathError(f"File does not exist: {path}")
        return GitDiff(modified=_lines(modified), original=_lines(original))

    def _text(self, path: str | Path) -> str | None:
        try:
            return str(
                self.call(self.box.files.read, self.inside(path)).decode(
                    errors="replace"
                )
            )
        except FileNotFoundError:
            return None

    def _git(self, path: str | Path, *words: str) -> str:
        command = ["git", "-C", self.inside(path), *words]
        result = self.call(self.box.run, command)
        if result.exit_code == 128 and words[0] != "show":
            raise GitRepositoryError(
                result.stderr.strip(), " ".join(command), result.exit_code
            )
        if not result.ok:
            raise GitCommandError(
                f"git {words[0]} failed", command, result.exit_code, result.stderr
            )
        return str(result.stdout)

    def pause(self) -> None:
        self.call(self.box.pause)

    def resume(self) -> None:
        self.call(self.box.resume)


def _is_in_the_sandbox(path: str | Path) -> bool:
    """/workspace as the sandbox knows it, not a directory of this machine."""
    return os.fspath(path) == WORKSPACE and not os.path.isdir(path)


def _place(working_dir: str | Path | None) -> str:
    if working_dir is None:
        return tempfile.mkdtemp(prefix="belljar-openhands-")
    return os.path.abspath(working_dir)


def _outcome(
    command: str, status: int, stdout: str, stderr: str, *, timed_out: bool = False
) -> CommandResult:
    return CommandResult(
        command=command,
        exit_code=status,
        stdout=stdout,
        stderr=stderr,
        timeout_occurred=timed_out,
    )


def _lines(text: str | None) -> str:
    return "\n".join((text or "").splitlines())


def _status(code: str) -> GitChangeStatus:
    return next(
        (STATUSES[letter] for letter in code if letter in STATUSES),
        GitChangeStatus.UPDATED,
    )


# The terminal tool.


class _Session:
    """What OpenHands' terminal executor drives, as its own `TerminalSession` is: the commands of one terminal."""

    def __init__(self, workspace: BelljarWorkspace, idle: float) -> None:
        self._workspace = workspace
        self._idle = idle
        self._terminal = Terminal(workspace.box)
        self._facts: dict[str, str | None] = {}
        self._was_shown = False
        self._closed = False
        self.terminal = self

    def is_powershell(self) -> bool:
        return False

    def initialize(self) -> None:
        self._workspace.call(self._open)

    async def _open(self) -> None:
        await self._terminal.open()
        self._terminal.begin(FACTS)
        lines = [*(await self._terminal.wait()).output.splitlines(), "", "", ""]
        self._facts = {
            "username": lines[0],
            "hostname": lines[1],
            "py_interpreter_path": lines[2] or None,
        }

    def execute(self, action: TerminalAction) -> TerminalObservation:
        command = action.command.strip()
        rejected = foreground_timeout_rejection_for(
            command=command, is_input=action.is_input, timeout=action.timeout
        )
        if rejected is not None:
            return _refused(command, rejected)
        if not self._terminal.is_busy and (not command or action.is_input):
            purpose = "interact with" if command else "retrieve logs from"
            return _refused(command, f"No previous running command to {purpose}.")
        if len(several := split_bash_commands(command)) > 1 and not action.is_input:
            listed = "\n".join(
                f"({number}) {one}" for number, one in enumerate(several, 1)
            )
            return _refused(
                command,
                "Cannot execute multiple commands at once.\nPlease run each command separately OR chain them into a "
                f"single command via && or ;\nProvided commands:\n{listed}",
            )
        seen: TerminalObservation = self._workspace.call(self._execute, command, action)
        return seen

    async def _execute(
        self, command: str, action: TerminalAction
    ) -> TerminalObservation:
        if self._terminal.is_busy and command and not action.is_input:
            return self._not_executed(command, await self._terminal.wait(timeout=0))
        key = _key(command) if action.is_input else None
        if action.is_input and command:
            await self._terminal.type(key or command.encode() + b"\n")
        elif command:
            self._was_shown = False
            self._terminal.begin(command)
        try:
            idle = self._idle if action.timeout is None else None
            seen = await self._terminal.wait(timeout=action.timeout, idle=idle)
        except belljar.PolicyDenied as denied:
            return self._shown(
                command,
                f"{boxes.reason(denied)}\n",
                CmdOutputMetadata(exit_code=denied.exit_status),
            )
        if seen.result is None:
            return self._still_running(command, seen, action.timeout)
        sent = (
            f" CTRL+{command[-1].upper()} was sent."
            if key and command.upper().startswith("C")
            else ""
        )
        facts = {
            **self._facts,
            "exit_code": seen.result.exit_code,
            "working_dir": seen.result.cwd,
        }
        suffix = (
            f"\n[The command completed with exit code {seen.result.exit_code}.{sent}]"
        )
        return self._shown(
            command, seen.output, CmdOutputMetadata(**facts, suffix=suffix)
        )

    def _still_running(
        self, command: str, seen: Seen, timeout: float | None
    ) -> TerminalObservation:
        what = (
            f"has no new output after {self._idle:g}"
            if seen.is_idle
            else f"timed out after {timeout}"
        )
        metadata = CmdOutputMetadata(
            suffix=f"\n[The command {what} seconds. {TIMEOUT_MESSAGE_TEMPLATE}]"
        )
        return self._shown(command, seen.output, metadata)

    def _not_executed(self, command: str, seen: Seen) -> TerminalObservation:
        suffix = (
            f'\n[Your command "{command}" is NOT executed. The previous command is still running - You CANNOT send new '
            "commands until the previous command is completed. By setting `is_input` to `true`, you can interact with "
            f"the current process: {TIMEOUT_MESSAGE_TEMPLATE}]"
        )
        return self._shown(
            command, seen.output, CmdOutputMetadata(suffix=suffix), is_error=True
        )

    def _shown(
        self,
        command: str,
        output: str,
        metadata: CmdOutputMetadata,
        *,
        is_error: bool = False,
    ) -> TerminalObservation:
        if self._was_shown and self._terminal.is_busy:
            metadata.prefix = "[Below is the output of the previous command.]\n"
        self._was_shown = self._terminal.is_busy
        return TerminalObservation.from_text(
            text=output.rstrip(),
            command=command,
            exit_code=metadata.exit_code,
            metadata=metadata,
            is_error=is_error,
        )

    def interrupt(self) -> bool:
        if not self._terminal.is_busy or not self._workspace.is_open:
            return False
        self._workspace.call(self._terminal.type, INTERRUPT)
        return True

    def close(self) -> None:
        if not self._closed and self._workspace.is_open:
            self._closed = True
            with contextlib.suppress(belljar.BelljarError):
                self._workspace.call(self._terminal.close)


def _refused(command: str, why: str) -> TerminalObservation:
    return TerminalObservation.from_text(text=why, command=command, is_error=True)


def _key(text: str) -> bytes | None:
    """What a name of a key sends."""
    if control := parse_ctrl_key(text):
        return bytes([ord(control[-1]) & 0x1F])
    name = text.strip()
    return KEYS[name].encode() if name in KEYS else None


class BelljarTerminalExecutor(TerminalExecutor):
    """OpenHands' own executor (secrets, masking, hints for a model) over a terminal in the sandbox."""

    def __init__(
        self,
        workspace: BelljarWorkspace,
        idle: float | None = None,
        save: str | None = None,
    ) -> None:
        self._workspace = workspace
        self._idle = idle or NO_CHANGE_TIMEOUT_SECONDS
        self._pool = None
        self._working_dir = WORKSPACE
        self.full_output_save_dir = save
        self._session: Any = self._begun()

    def _begun(self) -> _Session:
        session = _Session(self._workspace, self._idle)
        session.initialize()
        return session

    def _reset_single_session(self) -> TerminalObservation:
        self._session.close()
        self._session = self._begun()
        text = "Terminal session has been reset. All previous environment variables and session state have been cleared."
        return TerminalObservation.from_text(text=text, command="[RESET]", exit_code=0)


class BelljarTerminalTool(TerminalTool):
    """OpenHands' `terminal`, in the sandbox of the conversation's workspace."""

    name = TerminalTool.name

    @classmethod
    def create(
        cls,
        conv_state: Any,
        no_change_timeout_seconds: float | None = None,
        **options: Any,
    ) -> Any:
        workspace = _workspace(conv_state)
        executor = BelljarTerminalExecutor(
            workspace,
            no_change_timeout_seconds,
            conv_state.env_observation_persistence_dir,
        )
        return super().create(conv_state, executor=executor, **options)


# The file editor.

TOO_LARGE = b"too large"
"""In place of such a file's content."""


class BelljarFileEditorExecutor(FileEditorExecutor):
    """OpenHands' own editor, on a copy of the one file that it looks at or edits."""

    def __init__(self, workspace: BelljarWorkspace) -> None:
        self._workspace = workspace
        self._mirror = tempfile.mkdtemp(prefix="belljar-openhands-")
        weakref.finalize(self, shutil.rmtree, self._mirror, ignore_errors=True)
        super().__init__(workspace_root=self._mirror + WORKSPACE)

    def __call__(
        self, action: FileEditorAction, conversation: Any = None
    ) -> FileEditorObservation:
        if not action.path.startswith("/"):
            return super().__call__(action, conversation)
        path = self._workspace.inside(action.path)
        copy = Path(self._mirror + path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            before = self._fetch(path, copy)
            seen = super().__call__(
                action.model_copy(update={"path": str(copy)}), conversation
            )
            if copy.is_file() and before is not TOO_LARGE:
                self._write_back(path, copy, before)
        except (belljar.BelljarError, OSError) as error:
            return FileEditorObservation.from_text(
                text=str(error), command=action.command, is_error=True
            )
        finally:
            for entry in Path(self._mirror).iterdir():
                shutil.rmtree(entry, ignore_errors=True)
        return self._renamed(seen)

    def _fetch(self, path: str, copy: Path) -> bytes | None:
        """Copy a file of the sandbox, or the names in a directory; what is in the file."""
        files, call = self._workspace.box.files, self._workspace.call
        try:
            info = call(files.stat, path)
        except FileNotFoundError:
            return None
        if info.kind == "directory":
            self._make_names(copy, call(files.list, path, depth=2))
            return None
        if info.size > self.editor._max_file_size:
            with copy.open("wb") as file:  # the editor's own words tell the size
                file.truncate(min(info.size, 1 << 40))
            return TOO_LARGE
        content: bytes = call(files.read, path)
        copy.write_bytes(content)
        return content

    def _write_back(self, path: str, copy: Path, before: bytes | None) -> None:
        if (after := copy.read_bytes()) != before:
            self._workspace.call(boxes.write, self._workspace.box, path, after)

    @staticmethod
    def _make_names(place: Path, listed: Any) -> None:
        place.mkdir(exist_ok=True)
        for below in listed:
            if below.path.startswith("/") or ".." in below.path.split("/"):
                raise belljar.BelljarError(
                    f"the sandbox's answer cannot be used: {below.path!r}"
                )
            name = place / os.fsencode(below.path).decode(errors="replace")
            name.mkdir() if below.kind == "directory" else name.touch()

    def _renamed(self, seen: FileEditorObservation) -> FileEditorObservation:
        """The observation with the sandbox's paths."""
        return FileEditorObservation.model_validate_json(
            seen.model_dump_json().replace(self._mirror, "")
        )


class BelljarFileEditorTool(FileEditorTool):
    """OpenHands' `file_editor`, on the files of the sandbox."""

    name = FileEditorTool.name

    @classmethod
    def create(cls, conv_state: Any) -> Any:
        workspace = _workspace(conv_state)
        executor = BelljarFileEditorExecutor(workspace)
        (tool,) = super().create(conv_state)
        described = tool.description.replace(workspace.working_dir, WORKSPACE)
        return [
            tool.model_copy(update={"executor": executor, "description": described})
        ]


def _workspace(conv_state: Any) -> BelljarWorkspace:
    if not isinstance(conv_state.workspace, BelljarWorkspace):
        raise ValueError(
            "these tools need a BelljarWorkspace: Conversation(workspace=BelljarWorkspace())"
        )
    if outside := ON_THE_HOST & {tool.name for tool in conv_state.agent.tools}:
        raise ValueError(
            f"{', '.join(sorted(outside))}: works on this machine, not in the sandbox; leave it out"
        )
    return conv_state.workspace


class _TerminalTool(BelljarTerminalTool):
    """`terminal`, wherever the conversation's workspace is."""

    name = TerminalTool.name

    @classmethod
    def create(cls, conv_state: Any, *arguments: Any, **options: Any) -> Any:
        is_ours = isinstance(conv_state.workspace, BelljarWorkspace)
        return (BelljarTerminalTool if is_ours else TerminalTool).create(
            conv_state, *arguments, **options
        )


class _FileEditorTool(BelljarFileEditorTool):
    """`file_editor`, wherever the conversation's workspace is."""

    name = FileEditorTool.name

    @classmethod
    def create(cls, conv_state: Any) -> Any:
        is_ours = isinstance(conv_state.workspace, BelljarWorkspace)
        return (BelljarFileEditorTool if is_ours else FileEditorTool).create(conv_state)


for _tool in (BelljarTerminalTool, BelljarFileEditorTool):
    register_tool(_tool.__name__, _tool)
for _tool in (_TerminalTool, _FileEditorTool):
    register_tool(_tool.name, _tool)


def belljar_tools(**terminal: Any) -> list[Tool]:
    """For `Agent(tools=belljar_tools())`; `no_change_timeout_seconds` is the terminal's."""
    return [
        Tool(name=BelljarTerminalTool.__name__, params=terminal),
        Tool(name=BelljarFileEditorTool.__name__),
    ]
