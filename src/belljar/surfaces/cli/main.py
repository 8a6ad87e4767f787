"""The command line: `belljar run|shell|check|…`.

A command's handler is imported only when it is used, so that `--help` and `run` start quickly. Every error ends here,
as one line on stderr and an exit status.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from belljar import host
from belljar.errors import (
    BelljarError,
    EngineError,
    EngineUnavailable,
    ImageMissing,
    PolicyDenied,
)
from belljar.surfaces.cli import afterwards, console, far


def main(argv: Sequence[str] | None = None) -> int:
    """The whole program. Without `argv` it ends the process instead of returning."""
    gc.set_threshold(
        100_000
    )  # imports make no garbage, and looking for it takes a tenth of a quick command's time
    status = status_of(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _leave(status)
    afterwards.finish()
    return status


def status_of(argv: Sequence[str]) -> int:
    """Carry out a command line; what it leaves to be done afterwards is not done yet."""
    console.open_streams()
    _drop_relative_paths()
    try:
        status = _dispatch(argv)
        sys.stdout.flush()
        return status
    except BaseException as error:
        return _failed(console.cause_of(error))


def _drop_relative_paths() -> None:
    """PATH may have `.` or an empty entry. The current directory is usually a workspace: never run programs from it."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = (
        os.pathsep.join(entry for entry in entries if entry.startswith("/"))
        or os.defpath
    )


def _leave(status: int) -> NoReturn:
    """Exit without tearing down all modules, which takes a quarter of a quick command's time."""
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    afterwards.leave(status)


def _dispatch(argv: Sequence[str]) -> int:
    if argv[:1] == ["__complete"]:
        from belljar.surfaces.cli import completion

        return completion.answer(argv[1:])
    from belljar.surfaces.cli.arguments import host_of
    from belljar.surfaces.cli.parser import parse

    try:
        args = parse(argv)
    except SystemExit as printed:  # --help and --version
        return int(printed.code or 0)
    except BelljarError as error:
        if "--json" in argv[: list(argv).index("--") if "--" in argv else None]:
            console.document(_masked(error))
        raise
    module, _, function = args.handler.partition(":")
    if (
        module != "cli.run" or args.verbose
    ):  # `run` does this later, while the engine works
        from belljar.audit import log

        log.configure(verbose=args.verbose)
    handler = getattr(import_module(f"belljar.surfaces.{module}"), function)
    try:
        with host.used(host_of(args)), far.used(args):
            return _status_of(handler(args))
    except Exception as raised:
        cause = console.cause_of(raised)
        if (
            args.json and module != "cli.run" and isinstance(cause, BelljarError)
        ):  # `run` prints its own
            console.document(_masked(cause))
        raise


def _status_of(result: int | Coroutine[Any, Any, int]) -> int:
    """A handler may be a coroutine function."""
    if isinstance(result, int):
        return result
    import anyio

    return anyio.run(lambda: result)


def _masked(error: BelljarError) -> Any:
    from belljar.audit import masking

    return masking.value(error.as_dict())


def _failed(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, SystemExit):  # a signal asked us to end
        return int(error.code or 0)
    if os.environ.get("BELLJAR_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        return console.hang_up()
    if isinstance(error, PolicyDenied):
        console.note(denial(error))
    elif isinstance(error, BelljarError | OSError):
        console.note(f"{error}{_remedy(error)}")
    else:
        console.note(
            f"unexpected {type(error).__name__}: {error} (BELLJAR_DEBUG=1 shows where)"
        )
    return error.exit_status if isinstance(error, BelljarError) else 125


def _remedy(error: BelljarError | OSError) -> str:
    """The doctor's advice for an engine's error. Other errors name their remedy themselves."""
    if not isinstance(error, EngineError) or isinstance(
        error, EngineUnavailable | ImageMissing
    ):
        return ""
    from belljar.doctor.engine_items import known_remedy

    fix = known_remedy(error)
    return f"; {fix}" if fix else ""


def denial(error: PolicyDenied, hint: str = "; --yes approves") -> str:
    verdict = error.verdict
    if error.declined:
        return "not run: declined"
    rules = (
        ", ".join(
            rule.id for rule in verdict.rules if rule.decision == verdict.decision
        )
        or "policy"
    )
    if verdict.decision == "ask":
        return f"needs approval ({verdict.risk}): {verdict.reason} [{rules}]{hint}"
    return f"denied: {verdict.reason} [{rules}]"


if __name__ == "__main__":
    sys.exit(main())
