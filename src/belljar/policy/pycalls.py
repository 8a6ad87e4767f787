"""What Python's libraries do when they are called: the effects, and the values that come back.

Which function does what is data: [language.python.calls] names the functions of each kind.
"""

import base64
import binascii
import codecs
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import expressions
from .decoders import inflate, loose_base64
from .feed import Feed
from .files import is_loopback
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, SECRET, SENSITIVE, STAR, UNKNOWN, has, known, taints
from .pyvalues import Ref, bounded, decode, formatted, integer, joined, many, mapping, part, repeated, text_of
from .quoting import char, listed
from .roles_net import host_of, metadata
from .shellstate import BASE_ENV

if TYPE_CHECKING:
    from .pyscan import PythonScan

LOOP_LIMIT = 256
MAX_DEPTH = 8
Words = dict[str, Any]
_SAME = frozenset(
    listed("read decode encode readlines readline resolve absolute json items copy hex as_posix stdout values keys")
)
_PATH_METHODS = frozenset(
    listed("unlink rmtree write_text write_bytes touch read_text read_bytes open rename chmod symlink_to")
)
_SENDS = frozenset(listed("send sendall sendto post put request publish sendmail storbinary"))
_STRING_METHODS = listed("lower upper swapcase title capitalize strip lstrip rstrip removeprefix removesuffix")
_CHANGES = re.compile(
    r"(html|re|struct|quopri|uu|binascii|codecs|string|urllib\.parse|bz2|lzma)\.(?!compile|match|search)"
)


def kind_of(scan: "PythonScan", name: str) -> str:
    kinds = scan.call.machine.knowledge.languages["python"]["calls"].items()
    return next((kind for kind, pattern in kinds if expressions.fullmatch(pattern, name)), "")


def library(scan: "PythonScan", name: str, args: list[Any], words: Words) -> Any:
    kind, first = kind_of(scan, name), text_of(args[0]) if args else text_of(words.get("path", ""))
    if kind in DO:
        return DO[kind](scan, name, first, args, words)
    given = handed(scan, args, words)
    if given is not None:
        return given
    if kind and kind not in ("pass", "network"):
        scan.call.emit(kind, name)
    return _by_verb(scan, name, first) or _pure(scan, name, kind, first, args, words)


def handed(scan: "PythonScan", args: list[Any], words: Words) -> Ref | None:
    """A function that runs something, handed to another (a thread, a pool, atexit, partial) with its arguments."""
    given = [*args, *words.values()]
    for index, value in enumerate(given):
        name = value.name.removeprefix("builtins.") if isinstance(value, Ref) and value.bound is None else ""
        kind = kind_of(scan, name) if name else ""
        if kind in ("shell", "argv", "delete") or name in ("exec", "eval"):
            rest = given[index + 1 :] or given[:index]
            rest = rest[0] if len(rest) == 1 and isinstance(rest[0], list) else rest
            for each in [rest] if kind == "argv" else [[item] for item in rest]:
                library(scan, name, each, {})
            return Ref(name)
    return None


def _by_verb(scan: "PythonScan", name: str, path: str) -> str:
    """A function of a library that nobody described, whose name says what it does with a path."""
    verb = name.rsplit(".", 1)[-1] if path[:1] in ("/", "~") else ""
    scan.call.write(path) if re.match(r"to_|save|write_|export|dump", verb) else None
    return scan.call.read(path) if re.match(r"read(_|$)|load|scan_|imread|fromfile|parse|netrc|getlines", verb) else ""


def _code(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    text = first if args else text_of(next(iter(words.values()), ""))
    if name == "compile":
        return text
    if has(text, NETWORK):
        scan.call.emit("exec.network", "python exec")
    elif name.endswith(".loads"):
        scan.call.emit("exec.disguised", name) if name != "marshal.loads" and (
            known(text) or DISGUISED in text
        ) else None
        return DISGUISED
    elif known(text) and scan.depth < MAX_DEPTH:
        scan.depth += 1
        if not scan.run(text) and name == "exec":
            scan.call.emit("exec.disguised" if len(text) > 200 else "exec.unseen", text)
        scan.depth -= 1
    elif name == "exec" or has(text, ENCODED + DISGUISED):
        scan.call.emit("exec.disguised" if has(text, ENCODED + DISGUISED) else "exec.unseen", "python exec")
    return UNKNOWN


def _file_code(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    text = "".join(scan.call.machine.read_file(text_of(arg), scan.call.state) or "" for arg in args[:2])
    return _code(scan, "exec", text, [text], {})


def _load(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    scan.call.load(text_of(args[-1]) if args else first)
    return Ref("value.library", UNKNOWN)


def _getattr(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    base, attribute = args[0] if args else UNKNOWN, text_of(args[1]) if len(args) > 1 else ""
    return Ref(f"{base.name}.{attribute}") if isinstance(base, Ref) else Ref(f"value.{attribute}", base)


def opened(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    path = first if args else text_of(words.get("file", ""))
    mode = text_of(args[1]) if len(args) > 1 else text_of(words.get("mode", "r"))
    if re.search(r"[wax+]", mode) or (len(args) > 1 and (not isinstance(args[1], str) or args[1] == UNKNOWN)):
        overwrite(scan, path, "" if "w" in mode else FILE, "w" in mode)
        return Ref("file:" + path, FILE)
    return scan.call.read(path)


def overwrite(scan: "PythonScan", path: str, text: str, anew: bool) -> None:
    """What is written over every file there is, and is not what was read from it, empties them all."""
    read = any(effect.kind == "read" and STAR in effect.target for effect in scan.call.machine.effects)
    wipes = anew and STAR in path and not scan.picking and not read
    scan.call.write(path, text, *(["truncate"] if wipes else []))


def _argv(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    command = args[0] if args else words.get("args", "")
    for given in (one for one in (*args, words.get("env")) if isinstance(one, dict)):
        for key, value in given.items():
            scan.call.machine.set(key, text_of(value), scan.call.state.fork())
    if re.search(r"os\.(exec|spawn|posix_spawn)|create_subprocess_exec", name):
        flat = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
        texts = [text_of(item) for item in flat if not isinstance(item, int | dict | Ref)]
        twice = name.startswith("os.") and texts[1:] and texts[0].rsplit("/")[-1] == texts[1].rsplit("/")[-1]
        return scan.call.run(texts[1:] if twice else texts)
    argv = [text_of(item) for item in command] if isinstance(command, list) else text_of(command).split() or [""]
    scan.spawned = argv if "stdin" in words else scan.spawned
    feed = Feed(text_of(words["input"])) if "input" in words else Feed(text_of(words.get("stdin")))
    whole = words.get("shell") and not isinstance(command, list)
    return scan.run_text(text_of(command)) if whole else scan.call.run(argv, feed)


def deleted(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    path = first.replace(STAR, ATOM) if scan.picking else first
    scan.call.delete(path, *(["recursive"] if re.search("rmtree|removedirs", name) else []))
    return UNKNOWN


def as_program(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    """Functions that do what a program does: shutil.move, os.symlink, os.chmod …"""
    second, verb = args[1] if len(args) > 1 else ATOM, name.rsplit(".", 1)[-1].removeprefix("l")
    if verb in ("chmod", "chown"):
        mode = f"{second:o}" if isinstance(second, int) and verb == "chmod" else text_of(second)
        scan.call.run([verb, mode, first])
    else:
        program = {"symlink": "ln -s", "ink": "ln"}.get(verb, "cp -r" if verb.startswith("copy") else "mv").split()
        scan.call.run([*program, first, text_of(second)])
    return UNKNOWN


def _fetch(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    body = [*args[1:], *(words.get(key, "") for key in ("data", "json", "files", "params"))]
    marks = taints("".join(map(text_of, body)) + first)
    scan.call.send(marks, first) if has(marks, SECRET + SENSITIVE + ENCODED) else None
    scan.call.emit("net.fetch", first)
    metadata(scan.call, first)
    scan.call.write(args[1], NETWORK) if args[1:] and isinstance(args[1], str) else None
    return UNKNOWN if is_loopback(host_of(first)) else NETWORK


def _environment(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    given = mapping(*args, words) if name.endswith("update") else {first: args[1]} if len(args) > 1 else {}
    for key, value in given.items():
        scan.call.machine.set(key, text_of(value), scan.call.state)
    return UNKNOWN


def _chdir(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    scan.call.state.cwd = scan.call.locate(first)[0]


def _kill(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    scan.call.emit("process.killall") if first in ("-1", "1") or STAR in first else None


def _print(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    return scan.say(" ".join(map(text_of, args)) + ("\n" if name == "print" else ""))


DO: dict[str, Callable[["PythonScan", str, str, list[Any], Words], Any]] = {
    "code": _code, "file_code": _file_code, "load": _load, "getattr": _getattr, "open": opened, "argv": _argv,
    "delete": deleted, "program": as_program, "fetch": _fetch, "environment": _environment, "chdir": _chdir,
    "kill": _kill, "print": _print,
    "import": lambda scan, name, first, args, words: Ref(first if known(first) else "unknown"),
    "namespace": lambda scan, name, first, args, words:
        args[0] if args and isinstance(args[0], Ref) else Ref("builtins"),
    "shell": lambda scan, name, first, args, words: scan.run_text(first),
    "fork": lambda scan, name, first, args, words: scan.call.emit("process.forkbomb") if scan.looping else None,
    "temporary": lambda scan, name, first, args, words: f"/tmp/{ATOM}",
}  # fmt: skip

# -- methods


def method(scan: "PythonScan", name: str, value: Any, args: list[Any], words: Words) -> Any:
    call, text, first = scan.call, text_of(value), text_of(args[0]) if args else ""
    handed(scan, args, words)
    if isinstance(value, Ref) and value.name.startswith("file:"):
        if name in ("write", "writelines"):
            call.machine.write_file(value.name[5:], first, call.state, append=True)
        call.read(first) if name == "add" else None  # to an archive
        return value
    if name in ("system", "popen", "spawn"):
        return scan.run_text(first)
    if name in _PATH_METHODS:
        return _path_method(scan, name, text, args, words)
    if name in _SENDS:
        sent = "".join(text_of(arg) for arg in [*args, *words.values()])
        call.send(SENSITIVE + sent if name.startswith("send") and FILE in sent else sent, "remote")
        return NETWORK
    if not known(text) and kind_of(scan, f"ctypes.{name}") == "kernel.namespace":
        call.emit("kernel.namespace", f"ctypes {name}")
    if name in ("communicate", "write", "sendline") and scan.spawned and known(first):
        return call.run(scan.spawned, Feed(first))
    if name == "run" and text == UNKNOWN and call.is_program("".join(first.split()[:1])):
        return scan.run_text(" ".join(map(text_of, args)))  # nox, invoke, fabric
    if name in ("extractall", "extract"):
        call.unpack(text_of(args[-1]) if args else text_of(words.get("path", ".")))
        return UNKNOWN
    return _value_method(scan, name, value, text, first, args, words)


def _value_method(
    scan: "PythonScan", name: str, value: Any, text: str, first: str, args: list[Any], words: Words
) -> Any:
    if isinstance(value, dict) and name in ("get", "update"):
        return value.get(first, UNKNOWN) if name == "get" else value.update(mapping(*args, words))
    if isinstance(value, list) and name in ("append", "extend", "insert"):
        value += many(args[-1]) if name == "extend" and args else args[-1:]
        return bounded(value) and None
    if isinstance(value, list) and name in ("read", "readline"):
        return "\n".join(text_of(item) for item in value) if name == "read" else text_of(value[0]) if value else ""
    if name == "join" and args:
        items = [text_of(item) for item in many(args[0])]
        return repeated(text, len(items), lambda: text.join(items))
    if name == "replace" and len(args) > 1 and not isinstance(args[1], int):
        new, times = text_of(args[1]), text.count(first) if known(first) and first else 0
        return repeated(new, times, lambda: text.replace(first, new)) if times else text
    if name in ("iterdir", "glob", "rglob"):
        return [f"{text.rstrip('/')}/{STAR}" if not first.strip("*/") else f"{text.rstrip('/')}/{ATOM}/{ATOM}"]
    if name == "split" and known(text):
        return text.split(first) if first else text.split()
    if name == "decode" and first in ("hex", "base64", "rot13", "rot_13"):
        return _codec(scan, text, [text, first])
    if name in _STRING_METHODS:
        return getattr(text, name)(*([first] if args else []))
    if name in ("format", "joinpath", "expanduser"):
        path = (
            joined([text, *map(text_of, args)]) if name == "joinpath" else text.replace("~", scan.call.state.home(), 1)
        )
        return formatted(text, args, words) if name == "format" else path
    _by_verb(scan, name, first)
    if name in ("translate", "to_bytes"):
        return DISGUISED if known(text) else taints(text)
    if name in _SAME and not args:
        return value
    same = isinstance(value, str) and name in ("read", "decode", "encode", "with_suffix", "with_name", "tobytes")
    return text if same else NETWORK if NETWORK in text else UNKNOWN


def _path_method(scan: "PythonScan", name: str, text: str, args: list[Any], words: Words) -> Any:
    first = text_of(args[0]) if args else ""
    if name in ("unlink", "rmtree"):
        return deleted(scan, name, text, [], {})
    if name in ("read_text", "read_bytes"):
        return scan.call.read(text)
    if name == "open":
        return opened(scan, name, text, [text, *args], words)
    if name in ("write_text", "write_bytes", "touch"):
        return overwrite(scan, text, first or text_of(words.get("data", "")), name != "touch")
    pair = [first, text] if name == "symlink_to" else [text, *args]
    return as_program(scan, name.removesuffix("_to"), text_of(pair[0]), pair, words)


# -- pure functions


def _pure(scan: "PythonScan", name: str, kind: str, first: str, args: list[Any], words: Words) -> Any:
    """Text in, text out."""
    if name in PURE:
        return PURE[name](scan, first, args)
    environment = bool(args) and isinstance(args[0], Ref) and args[0].name == "os.environ"
    if name.startswith("base64.") or name in ("binascii.hexlify", "json.dumps", "repr"):
        return SENSITIVE if environment else (ENCODED if name[0] == "b" else "") + (taints(first) or first)
    if name in ("dict", "os.environ.copy"):
        return mapping(*(args if name == "dict" else [Ref("os.environ")]), words)
    if kind == "pass":
        paths = joined([text_of(arg) for arg in args]) if "Path" in name and args else first
        return SENSITIVE if environment else args[0] if len(args) == 1 else paths
    if kind == "network":
        return Ref("value.socket", NETWORK) if name.endswith("socket") else NETWORK
    everything = "".join(text_of(arg) for arg in args)
    if _CHANGES.match(name):
        return DISGUISED if everything and known(everything) else taints(everything)
    return part(taints(everything).replace(ATOM, "").replace(FILE, "")) or UNKNOWN


def _codec(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    name = (text_of(args[1]) if len(args) > 1 else "utf-8").replace("_codec", "").replace("_", "").lower()
    if name == "rot13":
        return codecs.decode(first, "rot13") if known(first) else taints(first)
    if name in ("hex", "base64"):
        return decode(first, binascii.unhexlify if name == "hex" else base64.b64decode)
    return first if name.startswith(("utf", "ascii", "latin")) or not known(first) else DISGUISED


def _literal(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    try:
        return json.loads(first)
    except (ValueError, RecursionError):
        return DISGUISED if known(first) else part(first)


def _bytes(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    numbers = args[0] if args and isinstance(args[0], list) else []
    whole = bool(numbers) and all(isinstance(item, int) and 0 <= item < 256 for item in numbers)
    return "".join(map(chr, numbers)) if whole else args[0] if args else ""


def _range(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    whole = bool(args) and all(isinstance(arg, int) for arg in args) and args[2:3] != [0]
    return list(range(*args[:3])[:LOOP_LIMIT]) if whole else UNKNOWN


def _map(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    given = args[1] if len(args) > 1 and isinstance(args[0], Ref) else []
    return [scan.invoke(args[0], [item], {}) for item in many(given)[:LOOP_LIMIT]]


PURE: dict[str, Callable[["PythonScan", str, list[Any]], Any]] = {
    **dict.fromkeys(("glob.glob", "glob.iglob"), lambda _, first, args: [first.replace("*", STAR)]),
    **dict.fromkeys(("os.listdir", "os.scandir"), lambda _, first, args: [STAR]),
    **dict.fromkeys(("os.path.join", "posixpath.join"), lambda _, first, args: joined([text_of(arg) for arg in args])),
    **dict.fromkeys(("os.getcwd", "pathlib.Path.cwd"), lambda scan, first, args: scan.call.state.cwd),
    **dict.fromkeys(("os.getenv", "os.environ.get"), lambda scan, first, args: text_of(scan.call.state.get(first))),
    **dict.fromkeys(("getpass.getuser", "os.getlogin"), lambda _, first, args: BASE_ENV["USER"]),
    **dict.fromkeys(("pwd.getpwuid", "pwd.getpwnam"), lambda scan, first, args:
        [BASE_ENV["USER"], "x", 1000, 1000, "", scan.call.state.home(), "/bin/bash"]),
    **dict.fromkeys(("input", "sys.stdin.read", "sys.stdin.readline"), lambda scan, *_: scan.call.stdin or UNKNOWN),
    **dict.fromkeys(("bytes.fromhex", "binascii.unhexlify", "binascii.a2b_hex"), lambda _, first, args:
        decode(first, lambda raw: binascii.unhexlify(re.sub(rb"\s", b"", raw)))),
    **dict.fromkeys(("codecs.decode", "codecs.encode", "codecs.getdecoder"), _codec),
    **dict.fromkeys(("base64.b64decode", "base64.urlsafe_b64decode", "base64.decodebytes", "binascii.a2b_base64"),
        lambda _, first, args: decode(first, loose_base64)),
    **dict.fromkeys(("zlib.decompress", "gzip.decompress"), lambda _, first, args: decode(first, inflate)),
    **dict.fromkeys(("json.loads", "ast.literal_eval"), _literal),
    "base64.b32decode": lambda _, first, args: decode(first, base64.b32decode),
    "base64.b85decode": lambda _, first, args: decode(first, base64.b85decode),
    "os.walk": lambda _, first, args: [[first, [STAR], [STAR]]],
    "os.path.expanduser": lambda scan, first, args: re.sub("^~", scan.call.state.home(), first),
    "pathlib.Path.home": lambda scan, first, args: scan.call.state.home(),
    "shlex.split": lambda _, first, args: first.split(),
    "chr": lambda _, first, args: char(args[0]) if args and isinstance(args[0], int) and args[0] >= 0 else UNKNOWN,
    "ord": lambda _, first, args: ord(first) if len(first) == 1 else UNKNOWN,
    "int": lambda _, first, args: integer(args) if args else UNKNOWN,
    "len": lambda _, first, args: len(args[0]) if args and isinstance(args[0], str | list) else UNKNOWN,
    "reversed": lambda _, first, args: list(reversed(many(args[0]))) if args else [],
    "map": _map, "range": _range, "bytes": _bytes, "bytearray": _bytes,
}  # fmt: skip
