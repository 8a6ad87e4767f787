"""Environment variables that run something: LD_PRELOAD, BASH_ENV, a PAGER that is a command."""

import re
from typing import TYPE_CHECKING

from .marks import known, solid
from .quoting import listed
from .shellstate import ShellState

if TYPE_CHECKING:
    from .machine import Machine

_NEVER = re.compile(
    r"BASH_ENV|ENV|PROMPT_COMMAND|LD_AUDIT|GCONV_PATH|PYTHONSTARTUP|PYTHONINSPECT|PERL5DB|BASH_FUNC_.*|"
    r"DYLD_INSERT_LIBRARIES|LD_PROFILE|PYTHONHOME|PERLLIB|GIT_CONFIG_COUNT|GIT_CONFIG_PARAMETERS"
    r"|GIT_TEMPLATE_DIR|GIT_EXEC_PATH|GIT_PROXY_COMMAND|GIT_EXTERNAL_DIFF|SUDO_ASKPASS|LESSOPEN|"
    r"LESSCLOSE|MANOPT|SSH_ASKPASS|GIT_ASKPASS|TEXMFCNF|LUA_INIT\w*|TAR_OPTIONS|"
    r"ZIPOPT|MAKEFILES|ZDOTDIR"
)
_COMMANDS = frozenset(
    listed(
        "PAGER GIT_PAGER MANPAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_SSH_COMMAND GIT_SSH "
        "BROWSER SYSTEMD_PAGER PSQL_PAGER FCEDIT PSQL_EDITOR RSYNC_RSH CVS_RSH MAIL_EDITOR HGEDITOR "
        "SVN_SSH MANROFFOPT"
    )
)
_TOOLS = frozenset(
    listed(
        "CC CXX LD AR CPP FC RUSTC MAKE SHELL CMAKE_C_COMPILER_LAUNCHER NPM_CONFIG_SCRIPT_SHELL npm_config_scri"
        "pt_shell CARGO_BUILD_RUSTC GOFLAGS"
    )
)
_OPTIONS = {
    "PYTHONBREAKPOINT": r"^(?!0$|(i?pdb|pudb)[.\w]*$)",
    **dict.fromkeys(
        ("DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "CONTAINER_RUNTIME_ENDPOINT"),
        r"^(unix://)?/|^tcp://(172\.17\.0\.1|host\.docker\.internal)",
    ),
    "PS2": r"[$`]\(|`",
    "JDK_JAVA_OPTIONS": r"-javaagent|-agentpath|OnOutOfMemoryError|OnError",
    "NODE_OPTIONS": r"(--require|-r|--import|--loader|--experimental-loader)[= ]+(?!ts-node|tsx|dotenv|source-map|"
    r"esm|@|\.?/?(node_modules|test|scripts|src)\b)|--eval|-e\b",
    "PERL5OPT": r"-[Mm](?!strict|warnings|utf8)|-d|-e|[;(]",
    "RUBYOPT": r"-r(?!bundler|rubygems|logger|set)|-e",
    "JAVA_TOOL_OPTIONS": r"-javaagent|-agentpath|-agentlib:(?!jdwp)|OnOutOfMemoryError|OnError",
    "_JAVA_OPTIONS": r"-javaagent|-agentpath|OnOutOfMemoryError|OnError",
    "GIT_CONFIG_GLOBAL": r"^/(?!dev/null)|^~",
    "GIT_CONFIG_SYSTEM": r"^/(?!dev/null)|^~",
    "GIT_CONFIG": r"^/(?!dev/null)|^~",
    "PS4": r"[$`]\(|`",
    "PS1": r"[$`]\(|`",
    "PS0": r"[$`]\(|`",
    "PERL5LIB": r"^/tmp|^/dev/shm",
    "PYTHONWARNINGS": r"antigravity|,.*:.*\.",
    "VIMINIT": r"!|system\(",
    "EXINIT": r"!|system\(",
    "GREP_OPTIONS": r"(?!)",
    "LESS": r"(?!)",
    "MAKEFLAGS": r"--eval",
    "CLASSPATH": r"(?!)",
    "HISTFILE": r"\.bashrc|\.profile",
    "SHELLOPTS": r"xtrace",
    "RUSTC_WRAPPER": r"^(?!sccache|/usr/bin/sccache|$|ccache)",
}
_QUIET = frozenset(
    listed(
        "cat less more most bat true false : vim vi nvim nano emacs code ed sed ssh delta head tail "
        "col diff-so-fancy cp mv touch tee echo printf perl-rename "
        "subl gedit micro hx kak helix emacsclient firefox lynx w3m xdg-open open pspg ssh-agent "
        "rsh cursor"
    )
)


# files of settings: the lines in them that make a program run something
_SCRATCH_PROGRAM = r"""[\["'\s]*(/tmp/|/var/tmp/|/dev/shm/|~/\.|(ba|da|z)?sh\b|[^"'\n]*[;|&`])"""
_SETTINGS = {
    re.compile(r".*/\.npmrc"): re.compile(
        r"(?m)^\s*(script-shell|onload-script)\s*=|node-options\s*=.*(--require|--import)"
    ),
    re.compile(r".*/\.cargo/config(\.toml)?"): re.compile(
        rf"(rustc|rustc(-workspace)?-wrapper|linker|runner|credential-process)\s*=\s*{_SCRATCH_PROGRAM}"
    ),
    re.compile(r".*/\.yarnrc(\.yml)?"): re.compile(rf"(?i)yarn-?path:?\s*{_SCRATCH_PROGRAM}"),
    re.compile(r".*/\.vscode/tasks\.json"): re.compile(r"folderOpen"),
}


def planted(machine: "Machine", path: str, text: str) -> None:
    """Tell when text written to a file of settings makes a program run something."""
    if any(name.fullmatch(path) and line.search(text) for name, line in _SETTINGS.items()):
        machine.emit("persist.env", path)
    for line in text.splitlines() if path.endswith("/github_env") else []:  # the environment of what runs next
        poisoned(machine, line.partition("=")[0], line.partition("=")[2], ShellState())


def poisoned(machine: "Machine", name: str, value: str, state: ShellState, program: str = "") -> None:
    """Tell when setting this variable makes later programs run something."""
    text = solid(value).strip()
    if not text:
        return
    if _NEVER.fullmatch(name) or (re.match(r"GIT_CONFIG_(KEY|VALUE)_", name) and _executes(text)):
        machine.emit("persist.env", f"{name}={text}")
    elif name == "LD_PRELOAD":
        if not re.search(
            r"lib(asan|tsan|ubsan|lsan|msan|jemalloc|tcmalloc|mimalloc|faketime|hugetlbfs|SegFault|profiler)", text
        ):
            machine.emit("persist.env", f"{name}={text}")
    elif re.fullmatch(r"\w*(_WRAPPER|STARTUP_HOOKS)|npm_config_script_shell|NPM_CONFIG_SCRIPT_SHELL", name):
        if not re.search(r"(^|/)(sccache|ccache)$", text):
            machine.emit("persist.env", f"{name}={text}")
    elif name in _OPTIONS:
        if re.search(_OPTIONS[name], text):
            machine.emit("persist.env", f"{name}={text}")
    elif name in _COMMANDS:
        _command(machine, name, text, state)
    elif (
        text.startswith("() {")
        or (name in _TOOLS and re.search(r"[;|&`]|\$\(|\b(ba|da|z)?sh\s+-c", text))
        or (name == "LD_LIBRARY_PATH" and re.match(r"(/tmp|/dev/shm|/var/tmp)", text) and program in ("sudo", "su"))
    ):
        machine.emit("persist.env", f"{name}={text}")


def _executes(text: str) -> bool:
    return re.search(r"[;|&`!]|\$\(|hooks|ssh|/|alias", text) is not None


def quiet_command(text: str) -> bool:
    """Whether an editor or a pager is only that, and not a command in its place."""
    first = text.split()[0].rsplit("/", 1)[-1].strip("'\"") if text.split() else ""
    if re.search(r"[;|&`<>\n]|\$\(|ProxyCommand|LocalCommand|KnownHostsCommand|:!", text):
        return False
    bare = re.fullmatch(r"[\w-]+", text) is not None and not re.search(r"sh$|python|perl|ruby|node|php", text)
    return bare or first in _QUIET


def _command(machine: "Machine", name: str, text: str, state: ShellState) -> None:
    if known(text) and not quiet_command(text):
        machine.emit("persist.env", f"{name}={text}")
    if known(text) and (not quiet_command(text) or re.search(r"ssh.*\s-F", text)):
        machine.run_text(text, state.fork())
