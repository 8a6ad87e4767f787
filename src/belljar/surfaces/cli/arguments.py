"""Arguments of the command line: how values are written, which flags a sandbox has, and what they mean together.

The flags are the fields of `SandboxOptions`; every command that opens a sandbox has them.
"""

from __future__ import annotations

import argparse
import os
import stat
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Collection
from dataclasses import Field, field
from typing import TYPE_CHECKING, Any

from belljar import enforcement, engines, host
from belljar.errors import UsageError
from belljar.host import Host
from belljar.layout import WORKSPACE
from belljar.limits import Limits, LimitsError
from belljar.options import FIELDS, HERE, SandboxOptions, parse_seconds
from belljar.records import record
from belljar.surfaces.cli import git_author

if TYPE_CHECKING:
    from belljar.engines.spec import Network
    from belljar.network.allow import Allow

NETWORKS = ("none", "full")
ENGINES = ("auto", *engines.KNOWN)


# Where programs keep their downloads, below the home directory.
CACHES = {
    "pip": ".cache/pip",
    "uv": ".cache/uv",
    "poetry": ".cache/pypoetry",
    "npm": ".npm",
    "yarn": ".cache/yarn",
    "cargo": ".cargo/registry",
    "go": "go/pkg/mod",
    "go-build": ".cache/go-build",
    "maven": ".m2",
    "gradle": ".gradle",
    "ccache": ".cache/ccache",
}


def mount(text: str) -> tuple[str, str]:
    source, colon, target = text.rpartition(":")
    if not colon or not source or not target:
        raise ArgumentTypeError(f"{text!r} is not SRC:DST, such as /srv/data:/data")
    return target, source


def cache(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not path and name not in CACHES:
        raise ArgumentTypeError(
            f"no program's cache is called {name!r} ({', '.join(CACHES)}); for another say where it is: "
            f"{name or 'NAME'}=~/.cache/{name or 'NAME'}"
        )
    return name, path or f"~/{CACHES[name]}"


def note(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{text!r} is not NAME=TEXT")
    return name, value


_PARSERS = {"mounts": mount, "cache": cache}


@record
class Flag:
    """An option of the command line."""

    name: str
    """As argparse calls its value: that of the field, where it is one of `SandboxOptions`."""
    flag: str
    help: str
    more: dict[str, Any] = field(default_factory=dict)
    """Arguments for the parser."""


def _flag_of(name: str, one: Field[Any]) -> Flag:
    """How the command line takes an option, which follows from its default."""
    about, more = one.metadata, {"default": one.default}
    if "const" in about:
        more |= {"action": "store_const", "const": about["const"]}
    elif isinstance(one.default, bool):
        more = {"action": "store_true"}
    elif isinstance(one.default, tuple):
        more = {"action": "append", "default": [], "type": _PARSERS.get(name, note)}
    more |= {key: about[key] for key in ("metavar", "choices") if key in about}
    return Flag(
        name, about.get("flag") or f"--{name.replace('_', '-')}", about["help"], more
    )


OPTIONS = tuple(
    _flag_of(name, one) for name, one in FIELDS.items() if one.metadata["help"]
)
_DOOR = (
    Flag(
        "allow",
        "--allow",
        "let commands reach this host through Belljar's proxy (if its name leads to a "
        "private address: =ADDRESS); may be repeated",
        {"action": "append", "default": [], "metavar": "HOST[:PORT][=ADDRESS]"},
    ),
    Flag(
        "allow_preset",
        "--allow-preset",
        "allow the hosts that python, node, debian, rust, go or git need",
        {"action": "append", "default": [], "metavar": "NAME"},
    ),
    Flag(
        "ask_hosts",
        "--ask-hosts",
        "ask before a host is reached that is not allowed",
        {"action": "store_true"},
    ),
)
"""Together with `--network` they are the option `network`."""
_ENGINE = Flag(
    "engine",
    "--engine",
    "container engine (default: the first that answers)",
    {"choices": ENGINES},
)
_HOST = (
    Flag(
        "runtime",
        "--runtime",
        "runc, crun, runsc … (default: the engine's own)",
        {"metavar": "NAME"},
    ),
    _ENGINE,
)
"""Of the host, which the environment describes too."""
SANDBOX = (*OPTIONS, *_DOOR, *_HOST)


def add_sandbox_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("sandbox")
    for one in SANDBOX:
        group.add_argument(one.flag, dest=one.name, help=one.help, **one.more)
    add_limits(group)


def refuse_beside_session(explicit: Collection[str]) -> None:
    """Options cannot change an existing sandbox. Only its policy and its engine can be named."""
    flags = {one.name: one.flag for one in SANDBOX} | {
        name: f"--{name}" for name in _HELP
    }
    for name, flag in flags.items():
        if name in explicit and name not in ("policy", "engine"):
            raise UsageError(
                f"{flag} and --session do not go together: use `belljar session start {flag}`"
            )


def add_engine_option(parser: ArgumentParser) -> None:
    parser.add_argument(_ENGINE.flag, help=_ENGINE.help, **_ENGINE.more)


def host_of(args: Namespace) -> Host:
    """The host that `--engine` and `--runtime` describe; without them, the default one."""
    engine, runtime = getattr(args, "engine", None), getattr(args, "runtime", None)
    return Host(engine=engine, runtime=runtime) if engine or runtime else host.default()


def options_of(args: Namespace, **more: Any) -> SandboxOptions:
    """The one way from a command line to options. `more`: those that have no flag."""
    given = {one.name: getattr(args, one.name) for one in OPTIONS}
    if given["name"] is not None:
        from belljar.surfaces.cli import names

        names.refuse_taken(given["name"])
    given |= {"network": network_of(args), "limits": limits(args)}
    if given["snapshot"] is not None and host.far_of(None) is not None:
        if "workspace" not in args.explicit:
            given["workspace"] = (
                WORKSPACE  # the snapshot's: this directory is not copied up
            )
    elif given["snapshot"] is not None:
        given = _beginning_with_a_snapshot(args, given)
    if variables := getattr(args, "session_env", None):  # of a devcontainer.json
        given["env"] = variables
    given |= {"author": given.get("author") or git_author.mine(), "on_close": "keep"}
    return enforcement.bound(SandboxOptions(**{**given, **more}))


def begin_with(args: Namespace) -> None:
    """What the rest of the command line asks of `args` is what the snapshot says, unless it was typed."""
    from belljar.session.snapshot import SnapshotFiles

    saved = SnapshotFiles.find(host.default(), args.snapshot).options
    for name in {"workspace", "changes"} - args.explicit:
        setattr(args, name, saved[name])


def _beginning_with_a_snapshot(
    args: Namespace, given: dict[str, Any]
) -> dict[str, Any]:
    """Only what was typed goes before what the snapshot says."""
    from belljar.session import snapshot

    explicit = getattr(args, "explicit", set()) | {"snapshot"}
    typed = {name: value for name, value in given.items() if name in explicit}
    if not explicit.isdisjoint(one.name for one in _DOOR):
        typed["network"] = given["network"]
    if not explicit.isdisjoint(_HELP):
        typed["limits"] = given["limits"]
    workspace, options = snapshot.completed(
        typed, typed.pop("workspace", HERE), host.default()
    )
    return {**enforcement.filled(options), "workspace": workspace}


def network_of(args: Namespace) -> Network | Allow:
    """What `--network`, `--allow`, `--allow-preset` and `--ask-hosts` mean together."""
    network: Any = args.network
    if not (args.allow or args.allow_preset or args.ask_hosts):
        return network  # type: ignore[no-any-return]
    if network != "none":
        raise UsageError(
            "--network full lets everything through: leave out --allow, --allow-preset and --ask-hosts"
        )
    from belljar.network.allow import Allow

    return Allow(*args.allow, presets=args.allow_preset, ask_hosts=args.ask_hosts)


# Limits.

_HELP = {
    "memory": "memory of all processes together (default {memory})",
    "cpus": "processor cores (default {cpus:g})",
    "pids": "processes and threads at once (default {pids})",
    "disk": "put /tmp and home on a disk volume of this size (default 4g, where possible)",
    "tmp": "put /tmp in memory, also beside a volume (default without one: {tmp})",
    "home": "put the home directory in memory, also beside a volume (default without one: {home})",
    "shm": "size of /dev/shm, in memory (default {shm})",
    "fsize": "size of the largest file that can be written (default {fsize})",
}


def add_limits(parser: ArgumentParser | _ArgumentGroup) -> None:
    """The options for limits, each with its default on this machine."""
    shown = described(Limits())
    for name, text in _HELP.items():
        unit = "N" if name in ("cpus", "pids") else "SIZE"
        parser.add_argument(f"--{name}", metavar=unit, help=text.format(**shown))


def described(limits: Limits) -> dict[str, object]:
    sizes = {
        name: f"{getattr(limits, name) >> 20}m"
        for name in ("memory", "tmp", "home", "shm", "fsize")
    }
    return {"cpus": limits.cpus, "pids": limits.pids, **sizes}


def limits(args: Namespace) -> Limits:
    explicit = {
        name: value
        for name in _HELP
        if (value := getattr(args, name, None)) is not None
    }
    try:
        return Limits(**explicit)
    except LimitsError as error:
        raise UsageError(f"--{error}") from None


_LONGEST_ENV_FILE = 1 << 20


def seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of lines, such as 20"
        )
    return int(text)


def named(text: str) -> str:
    """A session. An empty name is a variable of the caller's that was never set: nothing may run elsewhere instead."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "the session's name is empty; `belljar ps` lists the sessions"
        )
    return text


def variable(text: str) -> tuple[str, str]:
    """`NAME=value`. NAME alone takes the value of our own environment, so that it is not in the list of processes."""
    name, equals, value = text.partition("=")
    if not equals and name.isidentifier() and name not in os.environ:
        raise argparse.ArgumentTypeError(
            f"{name} is not set here, so there is no value to take; write {name}=value"
        )
    if not name or (not equals and name not in os.environ):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a variable; write NAME=value"
        )
    return name, value if equals else os.environ[name]


def env_file(path: str) -> list[tuple[str, str]]:
    """Read as by Docker, but each line needs a value: the file may come from a repository, which must not choose which
    of our own variables a command gets."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode) and not path.startswith(
            "/dev/fd/"
        ):  # opening it could wait for ever
            raise argparse.ArgumentTypeError(
                f"{path} is a named pipe; give a file, or write <(…)"
            )
        with open(path, encoding="utf-8") as file:
            text = file.read(_LONGEST_ENV_FILE + 1)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{path}: {getattr(error, 'strerror', None) or 'not text'}"
        ) from None
    if len(text) > _LONGEST_ENV_FILE:
        raise argparse.ArgumentTypeError(f"{path} is larger than 1 MiB")
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.lstrip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals and name.isidentifier():
            raise argparse.ArgumentTypeError(
                f"{path}, line {number}: {name} has no value; `-e {name}` takes that of your own environment"
            )
        if name != name.strip() or not equals:
            raise argparse.ArgumentTypeError(
                f"{path}, line {number}: {line!r} is not a variable; write NAME=value"
            )
        pairs.append((name, value))
    return pairs
