"""The errors that a caller of Belljar may catch.

    BelljarError                      125
    ├── UsageError                      2   the call itself is wrong; nothing was started
    │   ├── WorkspaceError              2   missing, a file, `/`, cannot be mapped to an unprivileged user
    │   ├── PolicyError                 2   a policy file with a mistake (file, line, reason)
    │   ├── ImageInvalid                2   an archive that is damaged, hostile or too large; nothing was imported
    │   ├── SessionNotFound             2
    │   ├── ShellNotFound               2
    │   └── Unsupported                 2   this sandbox or engine cannot do it, another one could
    ├── PolicyDenied                  126   judged and refused; nothing ran
    ├── CommandError                  125   the command could not be started
    │   ├── CommandNotFound           127   also a FileNotFoundError
    │   ├── CommandNotExecutable      126   also a PermissionError
    │   └── WorkingDirectoryError       2
    ├── EngineError                   125
    │   ├── EngineUnavailable         125   no engine answers
    │   ├── ImageMissing              125
    │   └── ProtectionMissing         125   a protection could not be applied, so the run was stopped
    ├── FileFailed                      1   a file of the sandbox could not be read or written; also an OSError
    ├── Conflict                        1   files with staged changes have changed on the host too; nothing was applied
    ├── AuditError                    125   the audit trail cannot be written, so nothing runs
    ├── QuotaExceeded                 125   sandboxes would take more than the operator or a cluster gives them
    ├── ServiceError                  125   a service refuses: the key, its scopes or quota, …; `problem` says what
    └── SandboxLost                   125   the sandbox went away under a command

A program that fails is not an error: see `Result.cause`. Each class has a code for machines and the exit status of the
command line.
"""

from __future__ import annotations

import errno as numbers
from collections.abc import Collection
from typing import Any, Protocol, Self


class Judged(Protocol):
    """A `belljar.Verdict`, as errors know it: the policy is above this module."""

    @property
    def decision(self) -> str: ...
    @property
    def risk(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def rules(self) -> tuple[Any, ...]: ...
    @property
    def canonical(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def policy(self) -> str: ...
    def as_dict(self, effects: bool = False) -> dict[str, Any]: ...


def closest(name: str, names: Collection[str]) -> str | None:
    """The name that an unknown one is most like."""
    from difflib import get_close_matches  # imported here: only needed for errors

    return next(iter(get_close_matches(name, names, 1)), None)


def suggestion(name: str, names: Collection[str]) -> str:
    """For an unknown name: the one that was probably meant, or a list of all."""
    close = closest(name, names)
    return (
        f"did you mean {close!r}?"
        if close
        else f"choose from {', '.join(sorted(names))}"
    )


class BelljarError(Exception):
    """The base of all errors that Belljar raises.

    try:
        await box.run("make")
    except belljar.BelljarError as error:
        print(error.code, error)
    """

    code = "failed"
    exit_status = 125

    def as_dict(self) -> dict[str, object]:
        return {"error": self.code, "message": str(self)}


class UsageError(BelljarError):
    """The call itself is wrong; nothing was started."""

    code = "usage"
    exit_status = 2


class WorkspaceError(UsageError):
    code = "workspace_invalid"


class PolicyError(UsageError):
    code = "policy_invalid"


class ImageInvalid(UsageError):
    code = "image_invalid"


class SessionNotFound(UsageError):
    code = "session_not_found"


class ShellNotFound(UsageError):
    code = "shell_not_found"


class Unsupported(UsageError):
    """This sandbox or engine cannot do what was asked; another one could.

    try:
        await box.run("apt-get install -y gcc", user="root")
    except belljar.Unsupported as unsupported:
        print(unsupported)  # open it with root=True
    """

    code = "unsupported"


UNANSWERED = " It needs an approval, which nobody gave (Session(approve=…); --yes)."


class PolicyDenied(BelljarError):
    """The command was judged and refused, or needed an approval that nobody gave.

    try:
        await box.run(command)
    except belljar.PolicyDenied as denied:
        print(denied.verdict.reason)
    """

    code = "policy_denied"
    exit_status = 126

    def __init__(self, verdict: Judged, *, declined: bool = False) -> None:
        unanswered = verdict.decision == "ask" and not declined
        super().__init__(
            f"{verdict.reason}{UNANSWERED}" if unanswered else verdict.reason
        )
        self.verdict = verdict
        self.declined = declined
        """A person was asked and said no."""

    def as_dict(self) -> dict[str, object]:
        return {
            **super().as_dict(),
            "declined": self.declined,
            "verdict": self.verdict.as_dict(),
        }


class CommandError(BelljarError):
    code = "command_failed_to_start"


class CommandNotFound(CommandError, FileNotFoundError):
    code = "command_not_found"
    exit_status = 127
    errno = numbers.ENOENT


class CommandNotExecutable(CommandError, PermissionError):
    code = "command_not_executable"
    exit_status = 126
    errno = numbers.EACCES


class WorkingDirectoryError(CommandError):
    code = "working_directory_invalid"
    exit_status = 2


class EngineError(BelljarError):
    code = "engine_failed"


class EngineUnavailable(EngineError):
    code = "engine_unavailable"
    others: tuple[str, ...] = ()
    """Of `auto`: the errors of the other engines that were tried."""


class NamedEngineUnavailable(EngineUnavailable):
    """The engine that the settings name (DOCKER_HOST, a context) does not answer. No other engine is tried."""


class EngineRefused(EngineUnavailable):
    """An engine is there, but this user may not use it."""


class ImageMissing(EngineError):
    code = "image_missing"


class ProtectionMissing(EngineError):
    code = "protection_missing"


class FileFailed(BelljarError, OSError):
    """A file of the sandbox could not be read or written; `errno` is the kernel's error number, or 0.

    It is also the error that Python's `open` would raise for this number:

    try:
        await box.files.read("notes.txt")
    except FileNotFoundError: ...
    """

    code = "file_failed"
    exit_status = 1

    def __new__(cls, message: str, *, errno: int = 0) -> Self:
        return OSError.__new__(_FILE_ERRORS.get(errno, cls), message)  # type: ignore[return-value]

    def __init__(self, message: str, *, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return _file_failed, (str(self), self.errno)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "errno": self.errno}


def _file_failed(message: str, errno: int) -> FileFailed:
    return FileFailed(message, errno=errno)


class FileMissing(FileFailed, FileNotFoundError): ...


class FileIsDirectory(FileFailed, IsADirectoryError): ...


class FileIsNoDirectory(FileFailed, NotADirectoryError): ...


class FileForbidden(FileFailed, PermissionError): ...


class FileThere(FileFailed, FileExistsError): ...


_FILE_ERRORS: dict[int, type[FileFailed]] = {
    numbers.ENOENT: FileMissing,
    numbers.EISDIR: FileIsDirectory,
    numbers.ENOTDIR: FileIsNoDirectory,
    numbers.EACCES: FileForbidden,
    numbers.EPERM: FileForbidden,
    numbers.EEXIST: FileThere,
}


class Conflict(BelljarError):
    """Staged changes cannot be applied: the same files have changed on the host. `paths` says why for each path.

    try:
        await box.apply()
    except belljar.Conflict as conflict:
        print(conflict.paths)
    """

    code = "conflict"
    exit_status = 1

    def __init__(self, paths: dict[str, str], done: str = "applied") -> None:
        super().__init__(
            f"nothing was {done}: "
            + "; ".join(f"{path}: {why}" for path, why in sorted(paths.items()))
        )
        self.paths = paths

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "paths": self.paths}


class AuditError(BelljarError):
    code = "audit_failed"


class QuotaExceeded(BelljarError):
    """All sandboxes of this user together would take more than the operator of the machine, or the namespace of a
    cluster, allows.

    try:
        box = await belljar.Session(limits=belljar.Limits(memory="8g")).open()
    except belljar.errors.QuotaExceeded as exceeded:
        print(exceeded)  # what is used, by what, and what to do
    """

    code = "quota_exceeded"


class ServiceError(BelljarError):
    """A service refuses what only a service can: the key, its scopes, its quota, an approval that was decided.

    try:
        await box.apply()
    except belljar.errors.ServiceError as refused:
        print(refused.problem["code"], refused.problem.get("scope"))
    """

    code = "service_refused"

    def __init__(self, message: str, problem: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.problem = problem or {}
        """What the service said (RFC 9457)."""

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "problem": self.problem}


class SandboxLost(BelljarError):
    """The sandbox went away. Its session is over: open a new one.

    try:
        await shell.read()
    except belljar.SandboxLost:
        box = await belljar.Session().open()
    """

    code = "sandbox_lost"
