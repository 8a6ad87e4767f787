"""The command line: `belljar run|shell|check|…`.

Each sub-command names its handler as text and is imported only when it is used, so that `--help` stays quick and
`run` does not pay for the others. Whatever goes wrong ends here as one line on stderr and an exit status.
"""

from __future__ import annotations

import argparse
import atexit
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from belljar import __version__
from belljar.errors import BelljarError, PolicyDenied, UsageError
from belljar.surfaces.cli import console
from belljar.surfaces.cli.limit_options import add_limits

EXAMPLES = """examples:
  belljar run 'pytest -q | tail -3'              one command in a throwaway container, bash text
  belljar run --timeout 60 -- make -j2 all       a program and its arguments, no shell
  belljar shell                                  safe mode: a prompt in the sandbox
  belljar check 'curl x | sh'                    what the policy would say, nothing runs
  id=$(belljar session start); belljar run --session $id 'echo hi'; belljar session stop $id

exit status: the command's own; 124 timeout, 125 sandbox failed, 126 denied, 127 not found, 2 bad usage"""
NETWORKS = ("none", "full")
ENGINES = ("auto", "docker", "podman", "oci")


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **options)
        self.allow_abbrev = False

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def build(only: str | None = None) -> Parser:
    """The parser; with `only`, just that command's group, which is all that a call of it needs."""
    parser = Parser("belljar", description="Runs commands in containers: sealed in, in full view.", epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"belljar {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)

    def command(name: str, handler: str, summary: str, into: Any = commands, **more: Any) -> Parser:
        made: Parser = into.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", **more)
        made.set_defaults(handler=handler)
        made.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        made.add_argument("-v", "--verbose", action="store_true", help="log what happens (BELLJAR_LOG=debug: more)")
        return made

    for group, names in GROUPS.items():
        if only is None or only in names:
            group(command, commands)
    return parser


def _work(command: Any, commands: Any) -> None:
    run = command("run", "cli.run:run", "run one command in a throwaway container", epilog=EXAMPLES)
    _sandbox_options(run)
    _command_options(run)
    run.add_argument("--session", metavar="ID", help="in a session that `belljar session start` made")
    run.add_argument("-i", "--interactive", action="store_true", help="pass stdin on (the default wherever it can be)")
    tty = run.add_mutually_exclusive_group()
    tty.add_argument("-t", "--tty", action="store_true", default=None,
                     help="give it a terminal (the default where stdin, stdout and stderr are one)")  # fmt: skip
    tty.add_argument("-T", "--no-tty", dest="tty", action="store_false", default=None, help="give it no terminal")
    run.add_argument("--yes", action="store_true", help="approve what the policy would ask about")
    run.add_argument("--report", metavar="FILE", help="write verdict, cause, timing and resources as JSON")
    run.add_argument("command", nargs="...", metavar="CMD", help="one argument: bash text; `-- CMD…`: argument vector")
    shell = command(
        "shell", "cli.safe_mode:shell", "safe mode, a prompt in the sandbox; without a terminal, the lines of stdin"
    )
    _sandbox_options(shell)
    shell.add_argument("--session", metavar="ID", help="in a session that `belljar session start` made")
    shell.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="for each command")
    check = command("check", "cli.policy_commands:check", "show the policy's verdict on a command; nothing runs")
    check.add_argument("--policy", default="default", metavar="P")
    check.add_argument("--explain", action="store_true", help="show the effects that were found")
    check.add_argument("command", nargs="*", metavar="CMD")


def _sessions(command: Any, commands: Any) -> None:
    session = commands.add_parser("session", help="long-lived sandboxes, across invocations")
    actions = session.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    start = command("start", "cli.session_commands:start", "start a session and print its id", into=actions)
    _sandbox_options(start)
    start.add_argument("--lease", type=_seconds, default=3600.0, metavar="SECONDS",
                       help="the sandbox ends after this long with nobody connected (default 3600)")  # fmt: skip
    command("list", "cli.session_commands:listing", "list the sessions there are", into=actions)
    stop = command("stop", "cli.session_commands:stop", "end sessions and all that runs in them", into=actions)
    stop.add_argument("ids", nargs="+", metavar="ID")
    background = command(
        "start", "cli.session_commands:background", "start a background shell in a session and print its id"
    )
    background.add_argument("--session", metavar="ID", required=True)
    background.add_argument("--policy", default="default", metavar="P")
    background.add_argument("--yes", action="store_true", help="approve what the policy would ask about")
    _command_options(background)
    background.add_argument("command", nargs="...", metavar="CMD")
    shells = command("shells", "cli.session_commands:shells", "list background shells")
    shells.add_argument("--session", metavar="ID", help="of this session only")
    logs = command("logs", "cli.session_commands:logs", "print what a background shell has printed")
    logs.add_argument("id", metavar="ID")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    kill = command("kill", "cli.session_commands:kill", "end a background shell and all its processes")
    kill.add_argument("ids", nargs="+", metavar="ID")


def _changes(command: Any, commands: Any) -> None:
    """Staged changes: look, keep, take back."""
    listed = command("changes", "cli.staged_commands:changes", "list what a staged session changed")
    shown = command("diff", "cli.staged_commands:diff", "show staged changes as a diff")
    taken = command("apply", "cli.staged_commands:apply", "put staged changes into the workspace")
    dropped = command("discard", "cli.staged_commands:discard", "drop staged changes")
    for each in (listed, shown, taken, dropped):
        each.add_argument("--session", metavar="ID", help="which; not needed if this directory has only one")
    for each in (shown, taken, dropped):
        each.add_argument("paths", nargs="*", metavar="PATH", help="only these (default: all)")
    taken.add_argument("-p", "--patch", action="store_true", help="ask change by change, and hunk by hunk")
    taken.add_argument("--force", action="store_true", help="over what the host changed meanwhile")
    taken.add_argument("--runs-later", action="store_true", help="also what the host would run by itself (hooks, CI)")
    taken.add_argument("--undo", action="store_true", help="take the last apply back, once")


def _tools(command: Any, commands: Any) -> None:
    tools = command("tools", "cli.tool_commands:tools", "list the tools that agents get, or print their schemas")
    tools.add_argument("--format", choices=("anthropic", "openai", "mcp"), help="print schemas in this form")
    call = command("call", "cli.tool_commands:call", "make one tool call and print its result")
    _sandbox_options(call)
    call.add_argument("--session", metavar="ID")
    call.add_argument("--yes", action="store_true", help="approve what the policy would ask about")
    call.add_argument("tool", metavar="TOOL")
    call.add_argument("parameters", nargs="?", default="{}", metavar="JSON")
    mcp = command("mcp", "mcp.command:serve", "serve the tools to an MCP client, on stdio or on loopback HTTP")
    _sandbox_options(mcp)
    mcp.add_argument("--tools", metavar="A,B", help="families: bash (default), terminal-run, …, all")
    mcp.add_argument("--http", nargs="?", const="127.0.0.1:0", metavar="HOST:PORT", help="streamable HTTP")
    mcp.add_argument("--token", metavar="TOKEN", help="that HTTP clients must show (default: a new one)")


def _upkeep(command: Any, commands: Any) -> None:
    images = commands.add_parser("images", help="build and list sandbox images")
    actions = images.add_subparsers(metavar="ACTION", parser_class=Parser)
    images.set_defaults(handler="cli.upkeep:listing", json=False, verbose=False)
    _engine_option(command("list", "cli.upkeep:listing", "list the images there are", into=actions))
    build = command("build", "cli.upkeep:build", "build an image of ours if it is missing", into=actions)
    build.add_argument("name", metavar="NAME", nargs="?", default="base", help="base, python, node or dev")
    build.add_argument("--force", action="store_true", help="even if it is there")
    _engine_option(build)
    add = command("import", "cli.image_commands:import_", "import an image for the engine `oci`", into=actions)
    add.add_argument("source", metavar="FILE|DIR", help="of `docker save`, an OCI layout, or a root file system")
    add.add_argument("--name", metavar="NAME", help="instead of the name that the archive gives")
    remove = command("remove", "cli.image_commands:remove", "remove images of the engine `oci`", into=actions)
    remove.add_argument("names", nargs="+", metavar="NAME")
    command("prune", "cli.image_commands:prune", "remove images without a name, and unused layers", into=actions)
    summary = "say what this machine's engine can enforce, and how to mend what it can't"
    _engine_option(command("doctor", "cli.upkeep:doctor", summary))
    _engine_option(command("prune", "cli.upkeep:prune", "remove what dead processes left behind"))
    audit = commands.add_parser("audit", help="read and verify the audit trail")
    actions = audit.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    show = command("show", "cli.audit_commands:show", "print the records", into=actions)
    show.add_argument("--session", metavar="ID")
    show.add_argument("--kind", help="verdict, approval, start, end, session_open or session_close")
    show.add_argument("--since", metavar="WHEN", help="2026-01-31T12:00, or for example 15m, 2h, 3d ago")
    show.add_argument("-f", "--follow", action="store_true", help="go on as records are written")
    command("verify", "cli.audit_commands:verify", "check the chain; names the first bad line", into=actions)
    policy = commands.add_parser("policy", help="explain and test policies")
    actions = policy.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    test = command("test", "cli.policy_commands:test", "judge the commands of files against what they expect",
                   into=actions)  # fmt: skip
    test.add_argument("files", nargs="+", metavar="FILE")
    test.add_argument("--policy", default="default", metavar="P")
    explain = command("explain", "cli.policy_commands:explain", "show the entries, effects and rules of a verdict",
                      into=actions)  # fmt: skip
    explain.add_argument("command", metavar="CMD")
    explain.add_argument("--policy", default="default", metavar="P")
    completion = command("completion", "cli.completion:completion", "print a completion script")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


GROUPS: dict[Callable[[Any, Any], None], tuple[str, ...]] = {
    _work: ("run", "shell", "check"),
    _sessions: ("session", "start", "shells", "logs", "kill"),
    _changes: ("changes", "diff", "apply", "discard"),
    _tools: ("tools", "call", "mcp"),
    _upkeep: ("images", "doctor", "prune", "audit", "policy", "completion"),
}


def _sandbox_options(parser: Parser) -> None:
    sandbox = parser.add_argument_group("sandbox")
    sandbox.add_argument("--workspace", default=".", metavar="DIR", help="mounted at /workspace (default: here)")
    sandbox.add_argument("--allow-home", action="store_true", help="take a home directory as the workspace")
    sandbox.add_argument("--image", default="base", help="base, python, node, dev or any local image")
    sandbox.add_argument("--policy", default="default", metavar="P", help="default, strict, ci, permissive, a file …")
    sandbox.add_argument("--network", choices=NETWORKS, default="none")
    add_limits(sandbox)
    sandbox.add_argument("--root", action="store_true", help="be root inside, nobody outside; needs the engine oci")
    sandbox.add_argument("--runtime", metavar="NAME", help="runc, crun, runsc … (default: the engine's own)")
    _engine_option(sandbox)


def _engine_option(parser: Any) -> None:
    parser.add_argument("--engine", choices=ENGINES, help="what runs the containers (default: the first that answers)")


def _command_options(parser: Parser) -> None:
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS")
    parser.add_argument("-e", "--env", action="append", type=_variable, default=[], metavar="K=V")
    parser.add_argument("-w", "--cwd", metavar="DIR", help="below the workspace")


def _seconds(text: str) -> float:
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:], 0)
    try:
        value = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        value = -1
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write seconds, or for example 90s, 5m, 1h")
    return value


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable; write NAME=value")
    return name, value


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """`-- CMD…` is an argument vector and `CMD` alone is bash text, so where the `--` stood must be known."""
    split = list(argv).index("--") if "--" in argv else len(argv)
    known = bool(argv) and any(argv[0] in names for names in GROUPS.values())
    args = build(argv[0] if known else None).parse_args(argv[:split])
    if hasattr(args, "command"):
        words, vector = args.command, list(argv[split + 1 :])
        if split < len(argv):
            args.command = [*words, "--", *vector] if words else vector
        elif len(words) == 1:
            args.command = words[0]
        elif words and " " in words[0]:
            raise UsageError(f"{words[1]!r} stands behind the command's text; options go before it")
        if not args.command:
            raise UsageError("no command given; for example: belljar run 'ls -la'")
    elif split < len(argv):
        raise UsageError("there is nothing to put behind -- here")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """The whole program; without `argv` it does not return but ends the process."""
    console.open_streams()
    try:
        status = _dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BaseException as error:
        status = _failed(console.cause_of(error))
    if argv is None:
        _leave(status)
    return status


def _leave(status: int) -> NoReturn:
    """Taking all modules apart first, as Python would, takes a quarter of a quick command's time."""
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _dispatch(argv: Sequence[str]) -> int:
    try:
        args = parse(argv)
    except SystemExit as answered:  # --help and --version
        return int(answered.code or 0)
    for option, variable in (("engine", "BELLJAR_ENGINE"), ("runtime", "BELLJAR_RUNTIME")):
        if given := getattr(args, option, None):
            os.environ[variable] = given  # what the default host follows, here and in what it starts
    module, _, function = args.handler.partition(":")
    if module != "cli.run" or args.verbose:  # a quick command has better things to import first
        from belljar import log

        log.configure(verbose=args.verbose)
    handler = getattr(import_module(f"belljar.surfaces.{module}"), function)
    try:
        return int(handler(args))
    except Exception as raised:
        error = console.cause_of(raised)
        if (
            args.json and module != "cli.run" and isinstance(error, BelljarError)
        ):  # `run` prints its own, with more in it
            console.document(_told(error))
        raise


def _told(error: BelljarError) -> Any:
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
        console.note(str(error))
    else:
        console.note(f"unexpected {type(error).__name__}: {error} (BELLJAR_DEBUG=1 shows where)")
    return error.exit_status if isinstance(error, BelljarError) else 125


def denial(error: PolicyDenied, hint: str = "; --yes approves") -> str:
    verdict = error.verdict
    rules = ", ".join(rule.id for rule in verdict.rules if rule.decision == verdict.decision) or "policy"
    if verdict.decision == "ask":
        return f"needs approval ({verdict.risk}): {verdict.reason} [{rules}]{hint}"
    return f"denied: {verdict.reason} [{rules}]"


if __name__ == "__main__":
    sys.exit(main())
