"""The command line's parser. Handlers are named as text, so that `--help` and `run` import only what they need."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from belljar import __version__
from belljar.errors import UsageError, closest, suggestion
from belljar.records import record
from belljar.surfaces.cli import console, examples, habits, settings
from belljar.surfaces.cli.arguments import (
    add_engine_option,
    add_sandbox_options,
    begin_with,
    count,
    env_file,
    named,
    refuse_beside_session,
    seconds,
    variable,
)

DESCRIPTION = "Runs commands in containers: isolated from the host, visible to you."
STATUSES = """exit status: the command's own; 124 timeout, 125 sandbox failed, 126 denied, 127 not found, 2 bad usage"""
AUDITED = (
    "verdict",
    "approval",
    "start",
    "end",
    "network",
    "allow",
    "apply",
    "undo",
    "discard",
    "session_open",
    "session_close",
    "pause",
    "resume",
    "kill",
    "snapshot",
    "torn",
    "head_lost",
)
COMMAND = "one argument: bash text; `-- CMD…`: argument vector"
SESSION = "a session's id or name; `belljar ps` lists them"
SHELL = "a background shell; `belljar shells` lists them"
IN_SESSION = ("--session", "ID", "run in this session (see `belljar session start`)")
POLICY = ("--policy", "P", "default, strict, ci, permissive, literal, none or a file")
NEW = ("--new", "with --staged: start apart from this directory's pending changes")
DEVCONTAINER = (
    "--devcontainer",
    "take image, variables and postCreateCommand from the workspace's devcontainer.json",
)
YES = ("--yes", "answer yes where the policy would ask")
OF_ALL = ("-a --all", "root only: of all users, as the kernel shows them")
CHECK_STATUSES = "exit status: 0 allowed, 3 would be asked about, 126 denied"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps between words only: `--allow-preset` and `/srv/data:/data` stay whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(
            " ".join(text.split()),
            width,
            break_on_hyphens=False,
            break_long_words=False,
        )


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", _Help)
        super().__init__(*args, **options)
        self.allow_abbrev = False

    def format_help(self) -> str:
        return f"{super().format_help()}\n{examples.of(self.prog.removeprefix('belljar '))}\n"

    def flag(self, names: str, help: str) -> None:
        self.add_argument(*names.split(), action="store_true", help=help)

    def takes(self, names: str, metavar: str, help: str, **more: Any) -> None:
        self.add_argument(*names.split(), metavar=metavar, help=help, **more)

    def error(self, message: str) -> NoReturn:
        if message.endswith("required: ACTION") and self._subparsers:
            message = f"say what to do: {', '.join(self._subparsers._group_actions[0].choices or ())}"
        see = f"see `{self.prog} --help`"
        raise UsageError(
            f"{message} S{see[1:]}" if message.endswith("?") else f"{message}; {see}"
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command: Parser = getattr(parsed, "parser", self)
            options = [
                name for name in command._option_string_actions if name.startswith("--")
            ]
            word = unknown[0].partition("=")[0]
            if word in options:
                command.error(f"{word} goes after the command: `{command.prog} {word}`")
            hint = habits.OPTIONS.get(word) or _similar_option(word, options)
            command.error(
                f"unrecognized arguments: {' '.join(unknown)}{f'; {hint}' if hint else ''}"
            )
        return parsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            hint = suggestion(str(value), [str(choice) for choice in action.choices])
            if isinstance(action, argparse._SubParsersAction):
                hint = (
                    habits.COMMANDS.get(str(value), hint)
                    if self.prog == "belljar"
                    else hint
                )
                raise argparse.ArgumentError(
                    None, f"there is no command {value!r}; {hint}"
                )
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {hint}")


def _similar_option(word: str, options: Sequence[str]) -> str:
    """Compared without the leading dashes, which all of them share."""
    close = (
        closest(word[2:], [option[2:] for option in options])
        if word.startswith("--")
        else None
    )
    return f"did you mean '--{close}'?" if close else ""


class Program(Parser):
    """The parser of `belljar` itself. Its help shows the commands in groups."""

    def format_help(self) -> str:
        commands = next(
            action
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
        )
        summaries = {choice.dest: choice.help for choice in commands._choices_actions}
        parts = [f"usage: belljar COMMAND [options]\n\n{DESCRIPTION}\n"]
        for group in GROUPS:
            lines = [
                f"    {name:<12} {summaries[name]}"
                for name in group.names
                if name in summaries
            ]
            parts.append(f"{group.title}:\n" + "\n".join(lines) + "\n")
        parts.append(
            f"`belljar help COMMAND` shows the options of a command.\n\n{examples.of('run')}\n\n{STATUSES}\n"
        )
        return "\n".join(parts)


class Commands:
    """The commands of a parser."""

    def __init__(
        self, parser: Parser, metavar: str = "COMMAND", *, required: bool = False
    ) -> None:
        self.parser = parser
        self._into = parser.add_subparsers(
            metavar=metavar, required=required, parser_class=Parser
        )

    def _new(self, name: str, summary: str, **more: Any) -> Parser:
        description = summary[0].upper() + summary[1:] + "."
        command: Parser = self._into.add_parser(
            name, help=summary, description=description, **more
        )
        command.set_defaults(parser=command)
        return command

    def add(self, name: str, handler: str, summary: str, **more: Any) -> Parser:
        command = self._new(name, summary, **more)
        command.set_defaults(handler=handler, json=False)
        if handler != "cli.safe_mode:shell":  # it prints no document
            command.flag("--json", "print one JSON document on stdout")
        command.flag("-v --verbose", "log what happens (BELLJAR_LOG=debug: more)")
        return command

    def family(self, name: str, summary: str, *, required: bool = True) -> Commands:
        """A command that has commands of its own."""
        return Commands(self._new(name, summary), "ACTION", required=required)


@record
class Group:
    title: str
    names: tuple[str, ...]
    build: Callable[[Commands], None]


_ahead: dict[str | None, Parser] = {}


def build_ahead(*names: str) -> None:
    """Parsers for later: `parse` uses each once. For processes that are forked from this one."""
    _ahead.update({name: build(name) for name in names})


def build(only: str | None = None) -> Parser:
    """The parser. With `only`, it has just that command's group: building all of them takes 30 ms."""
    program = Program("belljar")
    program.add_argument(
        "--version", action="version", version=f"belljar {__version__}"
    )
    commands = Commands(program)
    for group in GROUPS:
        if only is None or only in group.names:
            group.build(commands)
    return program


def _work(commands: Commands) -> None:
    run = commands.add(
        "run",
        "cli.run:run",
        "run one command in a throwaway container",
        epilog=f"On a terminal Ctrl+P Ctrl+Q leaves the command running; `belljar attach` comes back.\n\n{STATUSES}",
    )
    add_sandbox_options(run)
    _command_options(run)
    run.takes(*IN_SESSION, type=named)
    run.takes(
        "--shell",
        "NAME",
        "in this shell of the session: its directory, variables and functions hold from run to run",
    )
    run.flag(*NEW)
    run.flag(*DEVCONTAINER)
    run.flag("-i --interactive", "pass stdin to the command (the default)")
    tty = run.add_mutually_exclusive_group()
    tty.add_argument(
        "-t",
        "--tty",
        action="store_true",
        default=None,
        help="give it a terminal (default: if stdin, stdout and stderr are one)",
    )
    tty.add_argument(
        "-T",
        "--no-tty",
        dest="tty",
        action="store_false",
        default=None,
        help="give it no terminal",
    )
    run.flag(*YES)
    run.takes("--report", "FILE", "write verdict, cause, timing and resources as JSON")
    run.takes("--report-junit", "FILE", "the same as JUnit XML: one test, the command")
    run.takes(
        "--artifacts",
        "DIR",
        "copy out what the command leaves in $BELLJAR_ARTIFACTS; no links, no devices",
    )
    run.takes("command", "CMD", COMMAND, nargs="...")
    shell = commands.add(
        "shell",
        "cli.safe_mode:shell",
        "safe mode: a prompt in the sandbox; without a terminal, runs stdin's lines",
    )
    add_sandbox_options(shell)
    shell.takes(*IN_SESSION, type=named)
    shell.flag(*NEW)
    shell.flag(*DEVCONTAINER)
    shell.flag(*YES)
    shell.takes("--timeout", "SECONDS", "kill a command after this long", type=seconds)
    check = commands.add(
        "check",
        "cli.policy_commands:check",
        "show the policy's verdict on a command; nothing runs",
        epilog=CHECK_STATUSES,
    )
    check.takes(*POLICY, default="default")
    check.flag("--explain", "show the effects that the policy found")
    check.takes("command", "CMD", COMMAND, nargs="*")


def _sessions(commands: Commands) -> None:
    session = commands.family(
        "session", "start, list, pause and stop long-lived sandboxes"
    )
    start = session.add(
        "start", "cli.session_commands:start", "start a session and print its id"
    )
    add_sandbox_options(start)
    start.takes(
        "--lease",
        "SECONDS",
        "the sandbox ends after this long with nobody connected (default 3600)",
        type=seconds,
        default=3600.0,
    )
    start.flag(*DEVCONTAINER)
    start.flag(*YES)
    listed = session.add("list", "cli.session_commands:listing", "list sessions")
    listed.flag(*OF_ALL)
    stop = session.add(
        "stop", "cli.session_commands:stop", "end sessions and all that runs in them"
    )
    stop.takes("sessions", "ID", SESSION, nargs="+")
    pause = session.add(
        "pause",
        "cli.session_commands:pause",
        "freeze all processes of sessions where they stand",
    )
    pause.takes("sessions", "ID", SESSION, nargs="+")
    pause.takes(
        "--lease",
        "SECONDS",
        "the sandbox ends after so long a pause (default: as long as the session's)",
        type=seconds,
    )
    resume = session.add(
        "resume", "cli.session_commands:resume", "let paused sessions go on"
    )
    resume.takes("sessions", "ID", SESSION, nargs="+")
    snapshots = commands.family(
        "snapshots",
        "keep what sessions hold, for others to begin with (--snapshot NAME)",
    )
    made = snapshots.add(
        "make",
        "cli.snapshot_commands:make",
        "keep a session's staged changes, home, /tmp and shells under a name",
    )
    made.add_argument("session", metavar="ID", type=named, help=SESSION)
    made.add_argument("name", metavar="NAME", help="the snapshot's name")
    made.flag(
        "--whole",
        "also all files of a workspace that is not staged; it begins in an empty one",
    )
    made.flag("--replace", "replace the snapshot of that name")
    snapshots.add(
        "list", "cli.snapshot_commands:listing", "list snapshots with their sizes"
    )
    removed = snapshots.add(
        "remove", "cli.snapshot_commands:remove", "remove snapshots"
    )
    removed.takes("names", "NAME", "the snapshot's name", nargs="+")
    processes = commands.add(
        "ps", "cli.session_commands:listing", "list sessions, like `session list`"
    )
    processes.flag(*OF_ALL)
    stats = commands.add(
        "stats",
        "cli.stats:stats",
        "show the memory and processes of sessions; live on a terminal",
    )
    stats.takes("sessions", "ID", "only these", nargs="*")
    stats.flag("--once", "print once and exit")
    stats.flag(*OF_ALL)
    background = commands.add(
        "start",
        "cli.session_commands:background",
        "start a background shell in a session and print its id",
    )
    background.takes("--session", "ID", SESSION, type=named, required=True)
    background.takes(*POLICY, default="default")
    background.flag("-t --tty", "give it a terminal, to `belljar attach` to")
    background.flag(*YES)
    _command_options(background)
    background.takes("command", "CMD", COMMAND, nargs="...")
    shells = commands.add(
        "shells", "cli.session_commands:shells", "list background shells"
    )
    shells.takes("--session", "ID", "only of this session", type=named)
    logs = commands.add(
        "logs", "cli.session_commands:logs", "print the output of a background shell"
    )
    logs.takes("id", "ID", SHELL)
    logs.flag("-f --follow", "keep printing until it ends")
    logs.takes("-n --lines", "N", "only the last N lines", type=count)
    attach = commands.add(
        "attach",
        "cli.attach:attach",
        "enter a background shell; Ctrl+P Ctrl+Q leaves it",
    )
    attach.takes("id", "ID", f"{SHELL}; not needed if only one runs", nargs="?")
    wait = commands.add(
        "wait",
        "cli.session_commands:wait",
        "wait for a background shell and exit with its status",
    )
    wait.takes("id", "ID", SHELL)
    wait.takes(
        "--timeout", "SECONDS", "give up after this long (status 124)", type=seconds
    )
    kill = commands.add(
        "kill",
        "cli.session_commands:kill",
        "end a background shell and all its processes",
    )
    kill.takes("ids", "ID", f"{SHELL}; root: any user's session too", nargs="+")
    kill.takes(
        "--user", "NAME", "whose session, where users have given theirs the same id"
    )
    copy = commands.add(
        "cp", "cli.file_commands:copy", "copy files into a session, or out of it"
    )
    copy.takes("source", "SRC", "a path here, `ID:PATH` in a session, or - for stdin")
    copy.takes("target", "DST", "the same; - is stdout")
    forward = commands.add(
        "forward",
        "cli.file_commands:forward",
        "make a port of a session reachable on 127.0.0.1",
    )
    ports = "the session, not needed if there is only one; port here (default: a free one), and inside"
    forward.takes("sessions", "[ID] [HERE:]PORT", ports, nargs="*")
    forward.takes(
        "--session", "ID", "the session, instead of naming it first", type=named
    )
    forward.takes("--at", "PORT", "port here, as in HERE:PORT", type=int, default=0)


def _changes(commands: Commands) -> None:
    changes = commands.add(
        "changes", "cli.staged_commands:changes", "list what a staged session changed"
    )
    diff = commands.add(
        "diff", "cli.staged_commands:diff", "show staged changes as a diff"
    )
    apply = commands.add(
        "apply", "cli.staged_commands:apply", "write staged changes to the workspace"
    )
    review = commands.add(
        "review",
        "cli.staged_commands:review",
        "choose among staged changes on a full screen",
    )
    discard = commands.add(
        "discard", "cli.staged_commands:discard", "drop staged changes"
    )
    checkpoint = commands.add(
        "checkpoint",
        "cli.staged_commands:checkpoint",
        "save the state of a staged session's files, or list what was saved",
    )
    rollback = commands.add(
        "rollback",
        "cli.staged_commands:rollback",
        "take a staged session's files back to a checkpoint; yours stay as they are",
    )
    checkpoint.takes(
        "name",
        "NAME",
        "name of the checkpoint (default: checkpoint, checkpoint 2 …)",
        nargs="?",
    )
    checkpoint.flag(
        "--list", "list the checkpoints; `belljar diff --since NAME` compares"
    )
    checkpoint.flag("--replace", "replace the checkpoint of that name")
    checkpoint.takes("--forget", "NAME", "forget this one; the files stay as they are")
    rollback.takes(
        "name", "NAME", "name of the checkpoint (default: the last)", nargs="?"
    )
    for command in (changes, diff, review, apply, discard, checkpoint, rollback):
        command.takes(
            "--session",
            "ID",
            "an id or its beginning, a name, `last`, or a number of the list; seldom needed",
            type=named,
        )
    for command in (changes, diff, review, apply, discard):
        command.takes("paths", "PATH", "only these (default: all)", nargs="*")
    for command in (changes, diff, review, apply):
        command.flag("--ignored", "also what the project's .gitignore ignores")
    changes.flag(
        "--all", "also list what is in new directories, which are one line each"
    )
    diff.flag("--stat", "only show how many lines were added and removed in each file")
    diff.takes("--since", "NAME", "from this checkpoint to now")
    diff.takes("--until", "NAME", "from the checkpoint of --since to this one")
    apply.flag("-p --patch", "ask change by change, and hunk by hunk")
    apply.flag("--merge", "merge text files with what changed on the host meanwhile")
    apply.flag("--force", "overwrite what changed on the host meanwhile")
    apply.flag(
        "--runs-later", "also apply files that the host may run by itself (hooks, CI)"
    )
    apply.flag("--undo", "take back the last apply here; repeat it for the one before")


def _tools(commands: Commands) -> None:
    tools = commands.add(
        "tools",
        "cli.tool_commands:tools",
        "list the tools that agents get, or print their schemas",
    )
    tools.add_argument(
        "--format",
        choices=("anthropic", "openai", "mcp"),
        help="print schemas in this form",
    )
    call = commands.add(
        "call", "cli.tool_commands:call", "make one tool call and print its result"
    )
    add_sandbox_options(call)
    call.takes(*IN_SESSION, type=named)
    call.flag(*YES)
    call.takes("tool", "TOOL", "one that `belljar tools` lists")
    parameters = """parameters: '{"command": "ls"}', or command=ls timeout=5000"""
    call.takes("parameters", "JSON|NAME=VALUE", parameters, nargs="*")
    mcp = commands.add(
        "mcp",
        "cli.mcp_command:serve",
        "serve the tools to an MCP client, on stdio or on loopback HTTP",
    )
    add_sandbox_options(mcp)
    mcp.takes(
        "--tools",
        "A,B",
        "families: bash (default), files, …, all; --staged adds its own",
    )
    mcp.takes(
        "--http",
        "HOST:PORT",
        "serve streamable HTTP on this loopback address",
        nargs="?",
        const="127.0.0.1:0",
    )
    mcp.takes(
        "--token",
        "TOKEN",
        "token that HTTP clients must send (default: a new one); `ps` shows it, so rather "
        "set BELLJAR_MCP_TOKEN in the environment",
    )


def _dockerfile_options(parser: Parser) -> None:
    parser.takes("--file", "DOCKERFILE", "build from this (`oci`: with buildah)")
    parser.takes(
        "--context",
        "DIR",
        "what the build may see (default: the Dockerfile's directory)",
    )
    parser.takes(
        "--build-arg",
        "K=V",
        "the value of an ARG; may be repeated",
        type=variable,
        action="append",
        default=[],
    )


def _upkeep(commands: Commands) -> None:
    images = commands.family("images", "build and list sandbox images", required=False)
    images.parser.set_defaults(
        handler="cli.image_commands:list_images", json=False, verbose=False
    )
    add_engine_option(
        images.add("list", "cli.image_commands:list_images", "list images")
    )
    build = images.add(
        "build",
        "cli.image_commands:build_image",
        "build an image of Belljar's, or one from a Dockerfile, if it is missing",
    )
    build.takes(
        "name",
        "NAME",
        "base (if none is given), python, node or dev; with --file any other",
        nargs="?",
    )
    _dockerfile_options(build)
    build.flag("--force", "build it even if it exists")
    add_engine_option(build)
    add = images.add(
        "import",
        "cli.image_commands:import_image",
        "import an image for the engine `oci`",
    )
    add.takes(
        "source", "FILE|DIR", "from `docker save`, an OCI layout, or a root file system"
    )
    add.takes(
        "--name", "NAME", "name for it, instead of the archive's own; or base, python …"
    )
    add.takes("--id", "ID", "refuse any other image than what `export` called so")
    out = images.add(
        "export",
        "cli.image_commands:export_image",
        "write an image to a file, for another machine or job",
    )
    out.takes("name", "NAME", "an image of Belljar's (built if missing), or any other")
    out.takes("file", "FILE", "a tar; the same image gives the same bytes")
    add_engine_option(out)
    key = images.add(
        "key",
        "cli.image_commands:key",
        "print what a CI system can call its cache of an image by",
    )
    key.takes(
        "name", "NAME", "base (if none is given), python … or any other", nargs="?"
    )
    _dockerfile_options(key)
    add_engine_option(key)
    remove = images.add(
        "remove",
        "cli.image_commands:remove_images",
        "remove images of the engine `oci`",
    )
    remove.takes("names", "NAME", "one that `belljar images list` shows", nargs="+")
    unused = images.add(
        "prune",
        "cli.image_commands:prune_images",
        "remove nameless images and unused layers of `oci`",
    )
    for command in (remove, unused):
        command.add_argument(
            "--engine",
            choices=("oci",),
            help="only oci; for Docker use `docker image rm`",
        )
    summary = "check what this machine can enforce, and say how to fix what it cannot"
    add_engine_option(commands.add("doctor", "cli.upkeep:doctor", summary))
    setup = commands.add(
        "setup-user",
        "cli.setup_user:command",
        "as root: let an ordinary user run sandboxes of his own",
    )
    setup.takes("name", "NAME", "his name or number")
    setup.flag("--remove", "undo what this did for him")
    setup.flag("--yes", "do not ask")
    prune = commands.add(
        "prune", "cli.upkeep:prune", "clean up after Belljar processes that died"
    )
    add_engine_option(prune)
    prune.flag(
        "--caches", "also remove what `--cache` keeps; without this they are listed"
    )
    prune.flag("--staged", "also drop staged changes that were not applied; asks first")
    prune.takes(
        "--older",
        "TIME",
        "of --staged: only what was begun longer ago: 12h, 7d …",
        type=seconds,
    )
    prune.takes(
        "--workspace", "DIR", "of --staged: only of this directory, or below it"
    )
    prune.flag("--yes", "do not ask")
    cluster = commands.family(
        "kubernetes", "what a cluster needs for the engine `kubernetes`"
    )
    manifests = cluster.add(
        "manifests",
        "cli.kubernetes_commands:print_manifests",
        "print it for kubectl apply -f -",
    )
    manifests.takes(
        "--namespace", "NAME", "the namespace for all of it", default="belljar"
    )
    manifests.takes(
        "--sandboxes", "N", "how many Pods the quota allows", type=int, default=50
    )
    manifests.takes(
        "--runtime",
        "NAME",
        "the RuntimeClass of the Pods: one that gives them no network",
    )
    manifests.takes(
        "--public-url",
        "URL",
        "the service's address for its clients",
        default="https://belljar.example.com",
    )
    manifests.flag(
        "--no-service", "without `belljar serve`: only namespace, rights and walls"
    )
    manifests.flag(
        "--agent-sandbox",
        "with the rights to claim from a SandboxWarmPool of agent-sandbox",
    )
    manifests.takes(
        "--pull",
        "IMAGE",
        "have every node pull this image beforehand (a DaemonSet, one Pod a node of the quota); may be repeated",
        action="append",
        default=[],
    )
    image = cluster.add(
        "image",
        "cli.kubernetes_commands:write_image",
        "write the image that brings the init",
    )
    image.takes(
        "file", "FILE", "an archive for docker load, crane push or ctr images import"
    )
    image.add_argument(
        "--machine",
        choices=("x86_64", "aarch64"),
        default="x86_64",
        help="the nodes' architecture",
    )
    warm = cluster.add(
        "warm",
        "cli.kubernetes_commands:keep_warm",
        "keep Pods waiting, for every host with BELLJAR_KUBERNETES_WARM=1",
    )
    warm.add_argument("size", metavar="N", type=int, help="how many")
    add_sandbox_options(warm)
    pool = cluster.add(
        "pool",
        "cli.kubernetes_commands:print_pool",
        "print a SandboxWarmPool of agent-sandbox, for hosts with BELLJAR_KUBERNETES_WARM_POOL=NAME",
    )
    pool.takes("name", "NAME", "of the pool and of its template")
    pool.add_argument("size", metavar="N", type=int, help="how many wait")
    add_sandbox_options(pool)
    for command in (manifests, image):
        command.takes(
            "--images",
            "PREFIX",
            "put before the images' names: registry.example.com/team/",
            default="",
        )
    audit = commands.family("audit", "read and verify the audit trail")
    show = audit.add("show", "cli.audit_commands:show", "print the records")
    show.takes("--session", "ID", "only of this session", type=named)
    show.add_argument(
        "--kind",
        choices=AUDITED,
        metavar="KIND",
        help=f"{', '.join(AUDITED[:-1])} or {AUDITED[-1]}",
    )
    show.takes("--since", "WHEN", "2026-01-31T12:00, or for example 15m, 2h, 3d ago")
    show.flag("-f --follow", "keep printing as records are written")
    verify = audit.add(
        "verify",
        "cli.audit_commands:verify",
        "check the hash chain of all files; names the first bad line",
    )
    for command in (show, verify):
        command.flag("--collected", "root only: what the collector has of all users")
        command.takes("--user", "NAME", "of --collected: only this user's")
    collect = audit.add(
        "collect",
        "cli.audit_commands:collect",
        "root only: take the records of all users, where no user can change them",
    )
    collect.takes(
        "--socket",
        "PATH",
        "where users' records come in (/run/belljar-trail/socket)",
        default="/run/belljar-trail/socket",
    )
    collect.takes(
        "--drop-after",
        "TIME",
        "remove a user's full files after this long: 90d; without it never",
        type=seconds,
    )
    collect.flag("--print-unit", "print a systemd unit that runs it")
    for command in (show, verify, collect):
        command.takes(
            "--directory",
            "DIR",
            "where collected records are (/var/log/belljar/collected)",
            default="/var/log/belljar/collected",
        )
    network = commands.family("network", "show what the network door lets through")
    explain = network.add(
        "explain", "cli.upkeep:explain_presets", "show the hosts of a preset, and why"
    )
    explain.takes(
        "presets", "PRESET", "python, node, debian, rust, go or git", nargs="+"
    )
    explain.takes(
        "--image", "NAME", "ask the clients of this image too, as a session does"
    )
    policy = commands.family("policy", "show, explain and test policies")
    policy.add("list", "cli.policy_commands:list_shipped", "show the shipped policies")
    show = policy.add(
        "show",
        "cli.policy_commands:show",
        "show a policy's rules and what each decides",
    )
    show.takes("name", "NAME", "a shipped policy, or a file")
    why = policy.add(
        "explain",
        "cli.policy_commands:explain",
        "show how a command is read: entries, effects, rules",
    )
    why.takes(*POLICY, default="default")
    why.takes("command", "CMD", COMMAND, nargs="*")
    test = policy.add(
        "test",
        "cli.policy_commands:test",
        "judge the commands of files against what they expect",
    )
    lines = """a policy or knowledge file (.toml), or lines of {"command": …, "expect": "allow"}"""
    test.takes("files", "FILE", lines, nargs="+")
    test.takes(*POLICY, default="default")


def _about(commands: Commands) -> None:
    help = commands.add(
        "help", "cli.about:help", "show this list, or the options of one command"
    )
    help.takes("topic", "COMMAND", "such as run, or session start", nargs="*")
    commands.add("version", "cli.about:version", "show the version")
    commands.add(
        "config", "cli.about:config", "show the settings, and where each comes from"
    )
    schema = commands.add(
        "schema", "cli.schemas:schema", "print the JSON Schema of what --json prints"
    )
    schema.takes(
        "schema", "NAME", "which schema; without a name, lists them", nargs="?"
    )
    completion = commands.add(
        "completion", "cli.completion:completion", "print a completion script"
    )
    completion.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help="for this shell"
    )
    commands.add(
        "man", "cli.about:man", "print the manual page (belljar man | man -l -)"
    )


def _serving(commands: Commands) -> None:
    serve = commands.add(
        "serve",
        "http.serve:command",
        "serve sessions over HTTP, to many keys and tenants",
    )
    _serving_here(serve)
    serve.takes(
        "--listen",
        "HOST:PORT",
        "where to listen; port 0 is a free one",
        default="127.0.0.1:8808",
    )
    serve.takes(
        "--database",
        "URL",
        "postgresql://… for several servers (default: SQLite in the state directory)",
    )
    serve.takes(
        "--tls-cert", "FILE", "certificate; needed off loopback, unless --behind-proxy"
    )
    serve.takes("--tls-key", "FILE", "its key")
    serve.flag(
        "--behind-proxy",
        "a proxy ends TLS and sets X-Forwarded-For; needs --public-url",
    )
    serve.takes("--public-url", "URL", "the address that clients use")
    serve.takes(
        "--e2b",
        "HOST:PORT",
        "also speak E2B's wire there, for programs that use its clients",
    )
    serve.takes(
        "--output-kept",
        "SIZE",
        "how much output of each command is kept",
        default="64m",
    )
    serve.takes(
        "--warm",
        "N",
        "sandboxes that are kept ready, for the options asked for last",
        type=int,
        default=0,
    )
    serve.takes(
        "--preview-listen",
        "HOST:PORT",
        "serve links to sandboxes' ports there, apart from the dashboard",
    )
    serve.takes(
        "--preview-url",
        "URL",
        "https://*.HOST: a host name for each link (needs --preview-listen)",
    )
    serve.flag(
        "--check",
        "say what is wrong with these options on this machine, and start nothing",
    )
    serve.takes(
        "--print-unit",
        "KIND",
        "print a systemd unit with these options: for the machine, or for this user",
        nargs="?",
        const="system",
        choices=("system", "user"),
    )
    add_engine_option(serve)
    ci = commands.add(
        "ci",
        "cli.ci_jobs:show",
        "print a job for a CI system that runs a task in a sandbox",
    )
    ci.add_argument(
        "system",
        choices=("github", "gitlab", "jenkins", "without-root"),
        help="for this system",
    )
    judged = commands.add(
        "conformance",
        "cli.conformance_commands:command",
        "does a server behave as /v1's contract says?",
    )
    judged.add_argument("url", metavar="URL", help="the server's address")
    judged.takes(
        "--key", "KEY", "a key of it, best an operator's (default: $BELLJAR_KEY)"
    )
    judged.takes("--only", "GROUP", "the checks of one group")
    judged.takes("--report-junit", "FILE", "write the outcomes as JUnit XML")
    login = commands.add(
        "login",
        "cli.far:login",
        "run commands at a service (`belljar serve`) from now on",
    )
    login.add_argument(
        "url", metavar="URL", help="its address; the key is $BELLJAR_KEY, or asked for"
    )
    commands.add("logout", "cli.far:logout", "run commands on this machine again")
    approvals = commands.family(
        "approvals", "what waits at the service for a person's answer", required=False
    )
    approvals.parser.set_defaults(
        handler="cli.approval_commands:listing",
        json=False,
        verbose=False,
        session=None,
        all=False,
    )
    approvals.parser.flag("--json", "print one JSON document on stdout")
    listed = approvals.add("list", "cli.approval_commands:listing", "list what waits")
    listed.takes("--session", "ID", "only of this session")
    listed.flag("--all", "also what was decided")
    shown = approvals.add(
        "show",
        "cli.approval_commands:show",
        "show the whole command, and what it would do",
    )
    shown.add_argument("id", metavar="ID", help="an approval's id, or its beginning")
    allow = approvals.add("allow", "cli.approval_commands:allow", "let commands run")
    deny = approvals.add(
        "deny", "cli.approval_commands:deny", "do not let commands run"
    )
    allow.flag("--for-session", "also later ones of its kind in its session")
    for decided in (allow, deny):
        decided.takes(
            "--reason", "TEXT", "why; it is recorded, and told to whoever asked"
        )
        decided.takes("ids", "ID", "approvals' ids, or their beginnings", nargs="+")


def _serving_here(serve: Parser) -> None:
    local = serve.add_argument_group(
        "this user's own command lines, in processes that are ready"
    )
    for flag, function, text in (
        (
            "--local",
            "command",
            "serve them instead: `belljar run` then takes a few milliseconds",
        ),
        ("--stop", "stop", "end the local server"),
        ("--local-unit", "print_unit", "print a systemd user unit that starts it"),
    ):
        local.add_argument(
            flag,
            dest="handler",
            action="store_const",
            const=f"local.serving:{function}",
            help=text,
            default=argparse.SUPPRESS,
        )
    local.add_argument(
        "--detach", action="store_true", help="with --local: return when it answers"
    )


GROUPS = (
    Group("run commands", ("run", "shell", "check"), _work),
    Group(
        "sessions and background shells",
        (
            "session",
            "snapshots",
            "ps",
            "stats",
            "start",
            "shells",
            "logs",
            "attach",
            "wait",
            "kill",
            "cp",
            "forward",
        ),
        _sessions,
    ),
    Group(
        "staged changes",
        ("changes", "diff", "review", "apply", "discard", "checkpoint", "rollback"),
        _changes,
    ),
    Group("for agents", ("tools", "call", "mcp"), _tools),
    Group(
        "for others",
        ("serve", "login", "logout", "approvals", "ci", "conformance"),
        _serving,
    ),
    Group(
        "upkeep",
        (
            "images",
            "doctor",
            "setup-user",
            "prune",
            "kubernetes",
            "audit",
            "network",
            "policy",
        ),
        _upkeep,
    ),
    Group(
        "about belljar",
        ("help", "version", "config", "schema", "completion", "man"),
        _about,
    ),
)


def _command_options(parser: Parser) -> None:
    parser.takes(
        "--timeout", "SECONDS", "kill it after this long: 90, 5m, 1h …", type=seconds
    )
    repeated: dict[str, Any] = {"action": "append", "default": []}
    own = "set a variable; K alone takes yours; may be repeated"
    parser.takes("-e --env", "K=V", own, type=variable, **repeated)
    file = "read variables from a file, one K=V per line; -e overrides"
    parser.takes("--env-file", "FILE", file, type=env_file, **repeated)
    parser.takes(
        "-w --cwd",
        "DIR",
        "working directory: in the workspace, or an absolute path in the sandbox",
    )
    parser.takes(
        "-u --user", "NAME", "run as this user of a sandbox with root inside (--root)"
    )


def _with_settings(only: str | None, argv: Sequence[str]) -> argparse.Namespace:
    """Parse, with the settings as defaults."""
    values = settings.load()
    parser = _ahead.pop(only, None) or build(only)
    args = _parsed(parser, argv, values)
    workspace = getattr(args, "workspace", None)
    if (
        values
        and workspace is not None
        and (trusted := settings.load(workspace)) != values
    ):
        console.note(
            f"{settings.user_file()} is inside the workspace, where commands can write it, and is not read"
        )
        values, parser = trusted, build(only)
        args = _parsed(parser, argv, values)
    settings.enforce(args, values)
    args.resident = (
        settings.RESIDENT in values and values[settings.RESIDENT].value == "auto"
    )
    if getattr(args, "session", None) and hasattr(args, "policy"):
        settings.remove_defaults(parser)
        explicit = set(vars(parser.parse_args(argv)))
        refuse_beside_session(explicit)
        args.policy_is_explicit = "policy" in explicit or (
            "policy" in values and values["policy"].enforced
        )
    if getattr(args, "snapshot", None) or getattr(args, "devcontainer", False):
        settings.remove_defaults(parser)
        args.explicit = set(vars(parser.parse_args(argv)))
    if getattr(args, "snapshot", None):
        from belljar.surfaces.cli import far

        if far.configured() is None:  # else the service has the snapshot, and knows
            begin_with(args)
    return args


def _parsed(
    parser: Parser, argv: Sequence[str], values: dict[str, settings.Setting]
) -> argparse.Namespace:
    settings.apply(parser, values)
    args: argparse.Namespace = parser.parse_args(argv)
    return args


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. `-- CMD…` is an argument vector and `CMD` alone is bash text, so `--` is handled here."""
    split = list(argv).index("--") if "--" in argv else len(argv)
    known = bool(argv) and any(argv[0] in group.names for group in GROUPS)
    args = _with_settings(
        argv[0] if known and argv[0] not in ("help", "completion", "man") else None,
        argv[:split],
    )
    if not hasattr(args, "handler"):  # no command was given
        args.handler, args.topic, args.json, args.verbose = (
            "cli.about:help",
            [],
            False,
            False,
        )
    if hasattr(args, "env_file"):
        args.env = [*(pair for pairs in args.env_file for pair in pairs), *args.env]
    if hasattr(args, "command"):
        words, vector = args.command, list(argv[split + 1 :])
        if split < len(argv):
            args.command = [*words, "--", *vector] if words else vector
        elif len(words) == 1:
            args.command = words[0]
        elif words and args.verbose and habits.is_volume(words[0]):
            raise UsageError(
                f"-v logs what happens; to show a directory of this machine write --mount {words[0]}"
            )
        elif words and " " in words[0]:
            raise UsageError(
                f"{words[1]!r} comes after the command's text; put options before it"
            )
        if not (
            args.command.strip() if isinstance(args.command, str) else args.command
        ):
            raise UsageError(
                f"no command given; it comes last: `{args.parser.prog} … 'ls -la'`"
            )
    elif hasattr(args, "paths"):
        args.paths += argv[split + 1 :]
    elif split < len(argv):
        raise UsageError("this command takes nothing after --")
    return args
