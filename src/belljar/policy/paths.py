"""Path classes. The paths of each class are in policies/knowledge/places.toml.

Paths are resolved as text (`..`, `//`, `/./`), with the directory of the shell and the links that the command itself
made. A glob stands for what it could match.
"""

import functools
import re

from .marks import ANY, ATOM, BRACKET, HOLES, STAR, has, has_glob, known
from .quoting import MAX_BRACKETS, PATH_BRACKETS, piece_regex
from .toml_files import tables

WORKSPACE = "/workspace"
HOME = "/home/sandbox"
MAX_HOPS = 4000
_IN_HOME = r"(?:/home/[^/]+|/Users/[^/]+|/root)/"
_SCRATCH = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp")
Class = tuple[str, frozenset[str]]


@functools.cache
def _place(name: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in tables()["place"][name]))


def is_place(name: str, path: str) -> bool:
    return _place(name).fullmatch(path) is not None


def _in_home(name: str, path: str) -> bool:
    """Whether a path is such a place in a home (`…_home`) or elsewhere."""
    home = re.match(_IN_HOME, path)
    return (
        home is not None and is_place(f"{name}_home", path[home.end() :])
    ) or is_place(name, path)


def resolve(
    path: str,
    cwd: str,
    links: dict[str, str] | None = None,
    home: str = HOME,
    last: bool = True,
) -> str:
    """The absolute path without `.`, `..`, double slashes and this command's links; `last`: also as last component."""
    if path.startswith("~"):
        user, _, rest = path[1:].partition("/")
        path = f"{({'': home, 'root': '/root'}).get(user, f'/home/{user}')}/{rest}"
    absolute = path if path.startswith("/") else f"{cwd}/{path}"
    done = ""
    parts = absolute.split("/")
    for hop, part in enumerate(parts):
        if part in ("", ".") or hop > MAX_HOPS:
            continue
        done = done.rsplit("/", 1)[0] if part == ".." else f"{done}/{part}"
        if links and done in links and (last or hop < len(parts) - 1):
            done = resolve(
                links[done], "/", {k: v for k, v in links.items() if k != done}, home
            ).rstrip("/")
    return done or "/"


def could_match(pattern: str, path: str) -> bool:
    """Whether a path with active globs or marks could mean this one."""
    return (
        (regex := _shape(pattern)) is None or regex.fullmatch(path) is not None
    ) and not any(
        part[:1] == "."
        and shape[:1] in (STAR, ANY, BRACKET)  # a glob does not match a leading dot
        for part, shape in zip(path.split("/"), pattern.split("/"), strict=False)
    )


@functools.lru_cache(maxsize=256)
def _shape(pattern: str) -> re.Pattern[str] | None:
    if pattern.count(BRACKET) > MAX_BRACKETS:
        return None
    pieces = re.findall(f"{PATH_BRACKETS}|.", pattern, re.S)
    regexes = (
        piece_regex(STAR if piece in HOLES else piece, "[^/]*", "[^/]")
        for piece in pieces
    )
    first, *rest = "".join(regexes).split("[^/]*")
    numbered = enumerate(
        filter(None, rest[:-1]), 1
    )  # match each run where it first fits: trying all takes too long
    runs = [
        f"(?=(?P<run{number}>[^/]*?{run}))(?P=run{number})" for number, run in numbered
    ]
    try:
        return (
            re.compile("[^/]*".join((first + "".join(runs), *rest[-1:])))
            if len(runs) < 200
            else None
        )
    except re.error:
        return None


@functools.lru_cache(maxsize=4096)
def classify(path: str) -> Class:
    """The class and the flags of a path that `resolve` returned."""
    if has_glob(path):
        return _classify_glob(path)
    return _classify_hole(path) if has(path, HOLES) else _classify_known(path)


def _classify_glob(path: str) -> Class:
    if path.startswith("/proc/"):
        kind, flags = _classify_known(
            re.sub(f"^/proc/[^/]*[{STAR}{ANY}{BRACKET}][^/]*", "/proc/1", path)
        )
        if flags or kind == "secret":
            return kind, flags | {"glob"}
    head, first = _split_at_glob(path)
    if _covers_all(first) and re.fullmatch(
        rf"(/[{STAR}{ANY}]+)*/?", path[len(head.rstrip("/")) + 1 + len(first) :]
    ):
        kind, flags = classify(head or "/")
        return kind, flags | {"glob", "all"}
    for sample in tables()["place"]["samples"]:  # try some paths that matter
        if could_match(path, sample):
            kind, flags = _classify_known(sample)
            return kind, flags | {"glob"}
    plain = re.sub(f"[{STAR}{ANY}]|{PATH_BRACKETS}", "x", path)
    kind, flags = (
        _classify_known(plain)
        if head not in ("", "/")
        else ("system", frozenset({"top"}))
    )
    return kind, flags | {"glob"}


def _covers_all(name: str) -> bool:
    """Whether a pattern matches (nearly) everything in its directory: *, .*, ?*, [a-z]*, .[!.]*"""
    every = rf"\.?(?:{PATH_BRACKETS}|{ANY})*{STAR}+|\.{{0,2}}(?:{ANY}|{BRACKET}[!^][^]]*])+{STAR}+"
    return re.fullmatch(every, name) is not None


def _split_at_glob(path: str) -> tuple[str, str]:
    parts = path.split("/")
    index = next(index for index, part in enumerate(parts) if has_glob(part))
    return "/".join(parts[:index]) or "/", parts[index]


def _classify_hole(path: str) -> Class:
    """A path with a mark: somewhere in the known parent, or anywhere if the mark comes first."""
    head, hole, _ = re.split(f"([{HOLES}])", path, maxsplit=1)
    parent = head.rsplit("/", 1)[0] or "/"
    if hole == ATOM:
        return (
            _classify_known(path) if parent != "/" else ("system", frozenset({"top"}))
        )
    if parent == "/":
        return "unknown", frozenset({"unknown"})
    kind, flags = _classify_known(
        parent + "/x" if parent.startswith((WORKSPACE, *_SCRATCH)) else path
    )
    return kind, flags | {"unknown"}


def _classify_known(path: str) -> Class:
    none: frozenset[str] = frozenset()
    if path in ("/", WORKSPACE):
        return ("root" if path == "/" else "workspace_root"), none
    if path.startswith(WORKSPACE + "/"):
        return _classify_workspace(path)
    if is_place("engine", path):
        return "kernel", frozenset({"engine"})
    secret = _in_home("secret", path) and not is_place("own_process", path)
    if _in_home("hook", path) or is_place("own_program", path):
        own = {"own"} if is_place("own_rc", path) else set()
        return "exec_hook", frozenset({"secret"} if secret else own)
    if secret:
        return "secret", none
    if is_place("scratch", path):
        return "scratch", frozenset({"top"}) if path in _SCRATCH else none
    if path.startswith("/dev/") or path == "/dev":
        if re.match(r"/dev/(tcp|udp)/", path):
            return "device", frozenset({"socket"})
        return (
            ("scratch", frozenset({"sink"}))
            if is_place("sink", path)
            else ("device", none)
        )
    if re.match(r"/(proc|sys)(/|$)", path):
        return "kernel", frozenset({"escape"}) if is_place("escape", path) else none
    return _classify_outer(path)


def _classify_workspace(path: str) -> Class:
    if is_place("hook", path):
        return "exec_hook", frozenset()
    if re.fullmatch(rf"{WORKSPACE}/\.git(/objects|/refs|/HEAD)?", path):
        return "workspace_root", frozenset({"git"})
    flags = [flag for flag in ("sensitive", "later") if is_place(flag, path)]
    flags += ["git"] if re.search(r"/\.git(/|$)", path) else []
    secret = re.search(r"/\.ssh/id_|/\.git-credentials$|/\.aws/credentials$", path)
    return "secret" if secret else "workspace", frozenset(flags)


def _classify_outer(path: str) -> Class:
    parts = path.strip("/").split("/")
    if parts[0] in ("home", "Users", "root"):
        return "home", _home_flags(parts[1:] if parts[0] != "root" else parts)
    if is_place("rebuilt", path):
        return "elsewhere", frozenset()
    if is_place("system", path):
        engine = {"engine"} if parts[0].startswith(".belljar") and parts[1:] else set()
        return "system", frozenset({"top"} if len(parts) == 1 else engine)
    if len(parts) == 1:
        return "system", frozenset({"top", "odd"})
    return "elsewhere", frozenset({"sensitive"}) if is_place(
        "sensitive", path
    ) else frozenset()


def _home_flags(below: list[str]) -> frozenset[str]:
    """A home itself has no flag; `inner` may be deleted and is made again, `child` is somebody's own."""
    if len(below) < 2:
        return frozenset()
    others = below[0] != "sandbox" and not below[1].startswith(".")
    if len(below) == 2 and (
        others or is_place("personal", below[1]) or not known(below[1])
    ):
        return frozenset({"child"})
    return frozenset(
        {"inner", "sensitive"}
        if is_place("sensitive", "/" + "/".join(below))
        else {"inner"}
    )
