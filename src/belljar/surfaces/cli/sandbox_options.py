"""The options that configure a sandbox. One line here adds an option to every command that opens a sandbox."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Collection
from dataclasses import field
from typing import TYPE_CHECKING, Any

from belljar import engines
from belljar.errors import UsageError
from belljar.limits import Limits, LimitsError
from belljar.records import record

if TYPE_CHECKING:
    from belljar.engines.spec import Network
    from belljar.network.allow import Allow

NETWORKS = ("none", "full")
ENGINES = ("auto", *engines.KNOWN)


@record
class Option:
    flag: str
    keyword: str
    """The keyword of `belljar.Session`."""
    help: str
    more: dict[str, Any] = field(default_factory=dict)
    """Arguments for the parser."""
    variable: str = ""
    """Not a keyword: an environment variable that the default host follows."""
    of_network: bool = False
    """Not a keyword: part of the value of `network`."""
    of_plan: bool = False
    """Also a field of the plan that `belljar run` launches before it opens a session."""
    pairs: bool = False
    """May be repeated, with two parts each; `Session` gets a mapping."""


# Where programs keep their downloads, below the home directory.
CACHES = {
    "pip": ".cache/pip", "uv": ".cache/uv", "poetry": ".cache/pypoetry", "npm": ".npm", "yarn": ".cache/yarn",
    "cargo": ".cargo/registry", "go": "go/pkg/mod", "go-build": ".cache/go-build", "maven": ".m2", "gradle": ".gradle",
    "ccache": ".cache/ccache",
}  # fmt: skip


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


SANDBOX = (
    Option("--image", "image", "base, python, node, dev or any local image", {"default": "base"}, of_plan=True),
    Option("--policy", "policy", "default, strict, ci, permissive, literal or a file",
           {"default": "default", "metavar": "P"}),
    Option("--network", "network", "none (the default) or full",
           {"choices": NETWORKS, "default": "none"}, of_plan=True),
    Option("--allow", "allow", "let commands reach this host through Belljar's proxy (if its name leads to a "
           "private address: =ADDRESS); may be repeated",
           {"action": "append", "default": [], "metavar": "HOST[:PORT][=ADDRESS]"}, of_network=True),
    Option("--allow-preset", "allow_preset", "allow the hosts that python, node, debian, rust, go or git need",
           {"action": "append", "default": [], "metavar": "NAME"}, of_network=True),
    Option("--ask-hosts", "ask_hosts", "ask before a host is reached that is not allowed", {"action": "store_true"},
           of_network=True),
    Option("--staged", "changes", "keep changes aside until you `belljar apply` or `discard` them",
           {"action": "store_const", "const": "staged", "default": "direct"}, of_plan=True),
    Option("--root", "root", "be root in the sandbox, an ordinary user outside; needs the engine oci",
           {"action": "store_true"}, of_plan=True),
    Option("--debug", "debug", "allow gdb and strace", {"action": "store_true"},
           of_plan=True),
    Option("--mount", "mounts", "mount a directory of this machine read-only; may be repeated",
           {"action": "append", "default": [], "metavar": "SRC:DST", "type": mount}, of_plan=True, pairs=True),
    Option("--cache", "cache", "keep what pip, npm, uv … download for later sandboxes (`prune --caches` removes it)",
           {"action": "append", "default": [], "metavar": "NAME[=PATH]", "type": cache}, of_plan=True, pairs=True),
    Option("--metadata", "metadata", "attach a note that `session list --json` shows; may be repeated",
           {"action": "append", "default": [], "metavar": "NAME=TEXT", "type": note}, pairs=True),
    Option("--runtime", "runtime", "runc, crun, runsc … (default: the engine's own)", {"metavar": "NAME"},
           variable="BELLJAR_RUNTIME"),
    Option("--engine", "engine", "container engine (default: the first that answers)", {"choices": ENGINES},
           variable="BELLJAR_ENGINE"),
    Option("--allow-home", "allow_home", "allow a home directory as the workspace", {"action": "store_true"},
           of_plan=True),
)  # fmt: skip


def add_sandbox_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("sandbox")
    group.add_argument("--workspace", default=".", metavar="DIR", help="mounted at /workspace (default: here)")
    for option in SANDBOX:
        group.add_argument(option.flag, dest=option.keyword, help=option.help, **option.more)
    add_limits(group)


def refuse_beside_session(explicit: Collection[str]) -> None:
    """Options cannot change an existing sandbox. Only its policy and its engine can be named."""
    flags = {"workspace": "--workspace"} | {option.keyword: option.flag for option in SANDBOX}
    flags |= {name: f"--{name}" for name in _HELP}
    for keyword, flag in flags.items():
        if keyword in explicit and keyword not in ("policy", "engine"):
            raise UsageError(f"{flag} and --session do not go together: use `belljar session start {flag}`")


def add_engine_option(parser: ArgumentParser) -> None:
    engine = next(option for option in SANDBOX if option.keyword == "engine")
    parser.add_argument(engine.flag, help=engine.help, **engine.more)


def set_variables(args: Namespace) -> None:
    for option in SANDBOX:
        if option.variable and (value := getattr(args, option.keyword, None)):
            os.environ[option.variable] = value


def session_options(args: Namespace) -> dict[str, Any]:
    """Keywords of `Session`, without its policy."""
    values = {}
    for option in SANDBOX:
        if not option.variable and not option.of_network and option.keyword != "policy":
            value = getattr(args, option.keyword)
            values[option.keyword] = dict(value) if option.pairs else value
    return values | {"network": network_of(args)}


def plan_options(args: Namespace) -> dict[str, Any]:
    from belljar.sandbox.extras import caches_of, mounts_of

    plain = {option.keyword: getattr(args, option.keyword) for option in SANDBOX if option.of_plan}
    return plain | {"mounts": mounts_of(dict(args.mounts)), "cache": caches_of(dict(args.cache))}


def network_of(args: Namespace) -> Network | Allow:
    """What `--network`, `--allow`, `--allow-preset` and `--ask-hosts` mean together."""
    network: Any = args.network
    if not (args.allow or args.allow_preset or args.ask_hosts):
        return network  # type: ignore[no-any-return]
    if network != "none":
        raise UsageError("--network full lets everything through: leave out --allow, --allow-preset and --ask-hosts")
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
    sizes = {name: f"{getattr(limits, name) >> 20}m" for name in ("memory", "tmp", "home", "shm", "fsize")}
    return {"cpus": limits.cpus, "pids": limits.pids, **sizes}


def limits(args: Namespace) -> Limits:
    explicit = {name: value for name in _HELP if (value := getattr(args, name, None)) is not None}
    try:
        return Limits(**explicit)
    except LimitsError as error:
        raise UsageError(f"--{error}") from None
