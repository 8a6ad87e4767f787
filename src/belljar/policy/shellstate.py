"""What is known of a shell: where it is, what its names mean, which files this command has made."""

from collections.abc import Mapping
from copy import copy as shallow
from dataclasses import dataclass, field, replace
from typing import Any

from . import expressions
from .expressions import named
from .marks import ATOM, SENSITIVE, UNKNOWN, UNSET, known
from .paths import HOME, WORKSPACE

Value = str | list[str] | dict[str, str]

BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": HOME, "USER": "sandbox",
    "LOGNAME": "sandbox", "SHELL": "/bin/bash", "LC_CTYPE": "C.UTF-8", "TERM": "dumb", "BASH": "/bin/bash",
    "IFS": " \t\n", "OSTYPE": "linux-gnu", "BASH_VERSION": "5.2.15(1)-release", "HOSTTYPE": "x86_64",
    "MACHTYPE": "x86_64-pc-linux-gnu", "PS4": "+ ", "OPTIND": "1", "SHLVL": "1",
}  # fmt: skip
# What the environment of a person or a build server may hold; a default in its place may as well be what counts.
PERHAPS = {
    "TMPDIR": "/tmp", "XDG_RUNTIME_DIR": f"/tmp/{ATOM}", "RUNNER_TEMP": f"/tmp/{ATOM}", "GITHUB_WORKSPACE": WORKSPACE,
    "GITHUB_ENV": f"/tmp/{ATOM}/github_env", "CI_PROJECT_DIR": WORKSPACE, "XDG_CACHE_HOME": f"{HOME}/.cache",
    "CARGO_HOME": f"{HOME}/.cargo", "GOPATH": f"{HOME}/go", "VIRTUAL_ENV": f"{WORKSPACE}/.venv",
    "NVM_DIR": f"{HOME}/.nvm", "CARGO_TARGET_DIR": f"{WORKSPACE}/target",
}  # fmt: skip


class Feed:
    """A standard input: text that `read` takes line by line."""

    __slots__ = ("outside", "source", "text")

    def __init__(self, text: str = "", outside: bool = False, source: str = "") -> None:
        self.source = source  # the file that it was redirected from
        self.text, self.outside = text, outside  # `outside`: whatever stands before the whole command

    def line(self) -> str:
        line, _, rest = self.text.partition("\n")
        if known(line):
            self.text = rest
        return line

    def take(self) -> str:
        """All of it at once."""
        text, self.text = self.text or UNKNOWN, ""
        return text


@dataclass(slots=True, repr=False, eq=False)
class ShellState:
    """A shell between two commands. `files` and `links` belong to the file system, so subshells share them."""

    cwd: str = WORKSPACE
    env: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    name: str = "bash"
    last: str = "bash"
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    inherited: dict[str, Any] = field(default_factory=dict)  # functions of the shell that started this process
    feeds: dict[str, Any] = field(default_factory=dict)  # open descriptors; a subshell shares them, as it does offsets
    hidden: dict[str, Value] | None = None  # in a function: what its own variables were outside
    restless: frozenset[str] = frozenset()  # variables that do not become what they are given: read-only, references

    @classmethod
    def fresh(cls, cwd: str, env: Mapping[str, str] | None) -> "ShellState":
        return cls(cwd=cwd, env={**BASE_ENV, **PERHAPS, **(env or {})})

    def fork(self) -> "ShellState":
        """A subshell: its variables, functions and directory are its own."""
        return replace(
            self, env=dict(self.env), functions=dict(self.functions), aliases=dict(self.aliases), args=list(self.args)
        )

    def spawned(self) -> "ShellState":
        """A new process: it has no aliases, and the functions only where they were exported."""
        copy = self.fork()
        copy.aliases, copy.inherited = {}, self.functions
        return copy

    def either(self, other: "ShellState") -> None:
        """The shell may as well be in the other state: what differs is not known, and of two functions both run."""
        for name in [one for one in {**self.env, **other.env} if self.env.get(one) != other.env.get(one)]:
            self.env[name] = UNKNOWN
        self.restless |= other.restless
        for name, body in other.functions.items():
            if self.functions.setdefault(name, body) != body:
                both = [{"Cmd": {"Type": "Subshell", "Stmts": [body]}}, self.functions[name]]
                self.functions[name] = {"Cmd": {"Type": "Block", "Stmts": both}}

    def captured(self) -> "ShellState":
        """A subshell whose output goes to us, wherever `exec >` sent that of its parent."""
        copy = self.fork()
        copy.env.pop("&1>", None)
        return copy

    def detached(self) -> "ShellState":
        """A copy that shares nothing, for the next command of a persistent shell."""
        copy = self.fork()
        copy.files, copy.links = dict(self.files), dict(self.links)
        copy.feeds = {number: shallow(feed) for number, feed in self.feeds.items()}
        return copy

    def declared(self, variant: str, options: list[str], name: str, before: Value, bare: bool) -> None:
        """After `local`, `declare` or `readonly` of a variable; `bare`: it was given no value."""
        letters = "".join(option[1:] for option in options if option[:1] == "-")
        if self.hidden is not None and variant not in ("export", "readonly") and "g" not in letters:
            self.hidden.setdefault(name, before)
            self.env.update({name: UNSET} if bare else {})
        if variant != "export" and set(letters) & set("nlu"):  # a reference to another variable, or other letters
            self.doubt(name, self.env.get(name))
        self.restless |= {name} if variant == "readonly" or "r" in letters else set()

    def doubt(self, *names: Value | None) -> None:
        """Nobody knows any more what these hold, whatever they are given."""
        found = {name for name in names if isinstance(name, str) and name.isidentifier()}
        self.restless, self.env = self.restless | found, {**self.env, **dict.fromkeys(found, UNKNOWN)}

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
        if expressions.search(named("credential_variable"), name):
            vendor = name.split("_")[0].lower()
            return SENSITIVE + UNSET + (vendor if expressions.fullmatch(named("vendor"), vendor) else "")
        return ATOM if expressions.fullmatch(named("ambient_variable"), name) else UNSET
