"""The state of a shell: its directory, variables, functions, and the files that this command wrote."""

from collections.abc import Mapping
from copy import copy as shallow
from dataclasses import dataclass, field, replace
from typing import Any

from . import expressions
from .marks import ATOM, SENSITIVE, UNKNOWN, UNSET, known
from .paths import HOME, WORKSPACE

Value = str | list[str] | dict[str, str]

BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/bash",
    "LC_CTYPE": "C.UTF-8",
    "TERM": "dumb",
    "BASH": "/bin/bash",
    "IFS": " \t\n",
    "OSTYPE": "linux-gnu",
    "BASH_VERSION": "5.2.15(1)-release",
    "HOSTTYPE": "x86_64",
    "MACHTYPE": "x86_64-pc-linux-gnu",
    "PS4": "+ ",
    "OPTIND": "1",
    "SHLVL": "1",
}
# Variables that a person or a build server may have set. In `${TMPDIR:-/x}` either value may be used.
LIKELY_ENV = {
    "TMPDIR": "/tmp",
    "XDG_RUNTIME_DIR": f"/tmp/{ATOM}",
    "RUNNER_TEMP": f"/tmp/{ATOM}",
    "GITHUB_WORKSPACE": WORKSPACE,
    "GITHUB_ENV": f"/tmp/{ATOM}/github_env",
    "CI_PROJECT_DIR": WORKSPACE,
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "CARGO_HOME": f"{HOME}/.cargo",
    "GOPATH": f"{HOME}/go",
    "VIRTUAL_ENV": f"{WORKSPACE}/.venv",
    "NVM_DIR": f"{HOME}/.nvm",
    "CARGO_TARGET_DIR": f"{WORKSPACE}/target",
}


class Feed:
    """A standard input, which `read` takes line by line."""

    __slots__ = ("outside", "source", "text")

    def __init__(self, text: str = "", outside: bool = False, source: str = "") -> None:
        self.source = source  # the file that it comes from
        # `outside`: the standard input of the whole command
        self.text = text
        self.outside = outside

    def line(self) -> str:
        line, _, rest = self.text.partition("\n")
        if known(line):
            self.text = rest
        return line

    def take(self) -> str:
        """All of it."""
        text = self.text or UNKNOWN
        self.text = ""
        return text


@dataclass(slots=True, repr=False, eq=False)
class ShellState:
    """A shell between two commands. Subshells share `files` and `links`, which belong to the file system."""

    cwd: str = WORKSPACE
    env: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    name: str = "bash"
    last: str = "bash"
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    inherited: dict[str, Any] = field(
        default_factory=dict
    )  # functions of the shell that started this process
    feeds: dict[str, Any] = field(
        default_factory=dict
    )  # open descriptors, which subshells share
    shadowed: dict[str, Value] | None = (
        None  # in a function: the outer values of its variables
    )
    unreliable: frozenset[str] = (
        frozenset()
    )  # read-only variables, references: an assignment may not hold

    @classmethod
    def fresh(cls, cwd: str, env: Mapping[str, str] | None) -> "ShellState":
        return cls(cwd=cwd, env={**BASE_ENV, **LIKELY_ENV, **(env or {})})

    def fork(self) -> "ShellState":
        """A subshell: its variables, functions and directory are its own."""
        return replace(
            self,
            env=dict(self.env),
            functions=dict(self.functions),
            aliases=dict(self.aliases),
            args=list(self.args),
        )

    def new_process(self) -> "ShellState":
        """A new process: without aliases, and with functions only if they were exported."""
        copy = self.fork()
        copy.aliases = {}
        copy.inherited = self.functions
        return copy

    def merge(self, other: "ShellState") -> None:
        """The shell is in this state or the other: variables that differ become unknown, and both functions run."""
        for name in [
            one
            for one in {**self.env, **other.env}
            if self.env.get(one) != other.env.get(one)
        ]:
            self.env[name] = UNKNOWN
        self.unreliable |= other.unreliable
        for name, body in other.functions.items():
            if self.functions.setdefault(name, body) != body:
                both = [
                    {"Cmd": {"Type": "Subshell", "Stmts": [body]}},
                    self.functions[name],
                ]
                self.functions[name] = {"Cmd": {"Type": "Block", "Stmts": both}}

    def captured(self) -> "ShellState":
        """A subshell whose output is captured, even if `exec >` redirected that of its parent."""
        copy = self.fork()
        copy.env.pop("&1>", None)
        return copy

    def detached(self) -> "ShellState":
        """A copy that shares nothing with this one."""
        copy = self.fork()
        copy.files, copy.links = dict(self.files), dict(self.links)
        copy.feeds = {number: shallow(feed) for number, feed in self.feeds.items()}
        return copy

    def after_declaration(
        self, variant: str, options: list[str], name: str, before: Value, bare: bool
    ) -> None:
        """Note the declaration of a variable by `local`, `declare` or `readonly`. `bare`: it got no value."""
        letters = "".join(option[1:] for option in options if option[:1] == "-")
        if (
            self.shadowed is not None
            and variant not in ("export", "readonly")
            and "g" not in letters
        ):
            self.shadowed.setdefault(name, before)
            self.env.update({name: UNSET} if bare else {})
        if variant != "export" and set(letters) & set(
            "nlu"
        ):  # a reference, or upper or lower case
            self.mark_unreliable(name, self.env.get(name))
        self.unreliable |= {name} if variant == "readonly" or "r" in letters else set()

    def mark_unreliable(self, *names: Value | None) -> None:
        """From now on the values of these variables are unknown, whatever is assigned."""
        found = {
            name for name in names if isinstance(name, str) and name.isidentifier()
        }
        self.unreliable, self.env = (
            self.unreliable | found,
            {**self.env, **dict.fromkeys(found, UNKNOWN)},
        )

    def home(self) -> str:
        return home if isinstance(home := self.env.get("HOME", HOME), str) else HOME

    def get(self, name: str) -> Value:
        if name in self.env:
            return self.env[name]
        if name == "PWD":
            return self.cwd
        if name == "_" or (name == "BASH_SOURCE" and self.name != "bash"):
            return self.last if name == "_" else self.name
        if name in ("-", "BASHOPTS", "SHELLOPTS"):
            return "hBc"
        if expressions.holds("credential_variable", name):
            vendor = name.split("_")[0].lower()
            return (
                SENSITIVE
                + UNSET
                + (vendor if expressions.is_a("vendor", vendor) else "")
            )
        return ATOM if expressions.is_a("ambient_variable", name) else UNSET
