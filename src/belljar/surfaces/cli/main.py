"""The command line: `belljar run|shell|check|…`.

A command's handler is imported only when it is used, so that `--help` stays quick and `run` does not pay for the
others. Whatever goes wrong ends here as one line on stderr and an exit status.
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

from belljar.errors import BelljarError, EngineError, EngineUnavailable, ImageMissing, PolicyDenied
from belljar.surfaces.cli import afterwards, console


def main(argv: Sequence[str] | None = None) -> int:
    """The whole program; without `argv` it does not return but ends the process."""
    gc.set_threshold(100_000)  # imports make no garbage: looking for it took a tenth of a quick command's time
    console.open_streams()
    _look_for_programs_elsewhere()
    try:
        status = _dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BaseException as error:
        status = _failed(console.cause_of(error))
    if argv is None:
        _leave(status)
    afterwards.finish()
    return status


def _look_for_programs_elsewhere() -> None:
    """Not where we are called, a workspace as a rule, though PATH may say so (`.`, or an empty entry)."""
    found = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(each for each in found if each.startswith("/")) or os.defpath


def _leave(status: int) -> NoReturn:
    """Taking all modules apart first, as Python would, takes a quarter of a quick command's time."""
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    afterwards.leave(status)


def _dispatch(argv: Sequence[str]) -> int:
    if argv[:1] == ["__complete"]:
        from belljar.surfaces.cli import completion

        return completion.answer(argv[1:])
    from belljar.surfaces.cli.parser import parse
    from belljar.surfaces.cli.sandbox_options import set_variables

    try:
        args = parse(argv)
    except SystemExit as answered:  # --help and --version
        return int(answered.code or 0)
    except BelljarError as wrong:
        if "--json" in argv[: list(argv).index("--") if "--" in argv else None]:
            console.document(_masked(wrong))
        raise
    set_variables(args)
    module, _, function = args.handler.partition(":")
    if module != "cli.run" or args.verbose:  # a quick command has better things to import first
        from belljar.audit import log

        log.configure(verbose=args.verbose)
    handler = getattr(import_module(f"belljar.surfaces.{module}"), function)
    try:
        return _finished(handler(args))
    except Exception as raised:
        error = console.cause_of(raised)
        if args.json and module != "cli.run" and isinstance(error, BelljarError):  # `run` prints its own
            console.document(_masked(error))
        raise


def _finished(answer: int | Coroutine[Any, Any, int]) -> int:
    """A handler may be a coroutine function."""
    if isinstance(answer, int):
        return answer
    import anyio

    return anyio.run(lambda: answer)


def _masked(error: BelljarError) -> Any:
    from belljar.audit import masking

    return masking.value(error.as_dict())


def _failed(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, SystemExit):  # a signal that ended us
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
        console.note(f"unexpected {type(error).__name__}: {error} (BELLJAR_DEBUG=1 shows where)")
    return error.exit_status if isinstance(error, BelljarError) else 125


def _remedy(error: BelljarError | OSError) -> str:
    """What the doctor says of a sandbox that could not be made; other errors name their remedy themselves."""
    if not isinstance(error, EngineError) or isinstance(error, EngineUnavailable | ImageMissing):
        return ""
    from belljar.doctor.engine_items import known_remedy

    fix = known_remedy(error)
    return f"; {fix}" if fix else ""


def denial(error: PolicyDenied, hint: str = "; --yes approves") -> str:
    verdict = error.verdict
    if error.declined:
        return "not run: declined"
    rules = ", ".join(rule.id for rule in verdict.rules if rule.decision == verdict.decision) or "policy"
    if verdict.decision == "ask":
        return f"needs approval ({verdict.risk}): {verdict.reason} [{rules}]{hint}"
    return f"denied: {verdict.reason} [{rules}]"


if __name__ == "__main__":
    sys.exit(main())
