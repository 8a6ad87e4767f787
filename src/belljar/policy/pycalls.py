"""What Python's functions and methods do when they are called: their effects, and the values that come back.

Which function does what is data: [language.python.calls] names the functions of each kind. A kind is a word that is
explained here, an effect, or the shell command that does the same (`rm -r {0}`).
"""

import binascii
import codecs
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from belljar.patterns import lazy_pattern

from . import expressions
from .decoders import inflate, loose_base64
from .feed import Feed
from .files import is_loopback
from .marks import (
    ATOM,
    DISGUISED,
    ENCODED,
    FILE,
    HIDDEN,
    NETWORK,
    PRIVATE,
    SENSITIVE,
    STAR,
    UNKNOWN,
    clip,
    has,
    known,
    taints,
)
from .pyvalues import Ref, decode, formatted, joined, many, part, text_of
from .quoting import char
from .roles_net import host_of, metadata

if TYPE_CHECKING:
    from .pyscan import PythonScan

LOOP_LIMIT = 256
MAX_DEPTH = 8
Words = dict[str, Any]
_SAME = ("read", "readlines", "readline", "resolve", "absolute", "items", "copy", "hex", "as_posix", "values", "keys")
_STRING_METHODS = ("lower", "upper", "swapcase", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix")
_CHANGES = lazy_pattern(r"(html|re|struct|binascii|codecs|string|urllib\.parse|bz2|lzma|marshal|pickle)\.(?!compile)")


def kind_of(scan: "PythonScan", name: str) -> str:
    kinds = scan.call.machine.knowledge.languages["python"]["calls"].items()
    return next((kind for kind, pattern in kinds if expressions.fullmatch(pattern, name)), "")


def library(scan: "PythonScan", name: str, args: list[Any], words: Words) -> Any:
    kind = kind_of(scan, name)
    done = _done(scan, kind, name, args, words)
    return _pure(scan, name, kind, args) if done is None else done


def _done(scan: "PythonScan", kind: str, name: str, args: list[Any], words: Words) -> Any:
    """What a call of this kind gives back; None where it only computes."""
    if kind in DO:
        given = args or [words[key] for key in ("path", "file", "args", "cmd") if key in words][:1]
        found = DO[kind](scan, name, text_of(given[0]) if given else "", given, words)
        return UNKNOWN if found is None else found
    if " " in kind:
        return scan.call.run([_filled(scan, word, args) for word in kind.split()])
    scan.call.emit(kind, name) if kind not in ("", "pass", "network") else None
    return None


def _filled(scan: "PythonScan", word: str, args: list[Any]) -> str:
    """A word of the shell command that does the same. Where a condition picks some files, it is not all of them."""
    found = re.fullmatch(r"\{(\d)(:o)?\}", word)
    if not found:
        return word
    value = args[int(found[1])] if int(found[1]) < len(args) else ATOM
    text = f"{value:o}" if found[2] and isinstance(value, int) else text_of(value)
    return text.replace(STAR, ATOM) if scan.picking else text


def _code(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    if name == "compile":
        return first
    if has(first, NETWORK):
        scan.call.emit("exec.network", "python exec")
    elif known(first) and scan.depth < MAX_DEPTH:
        scan.depth += 1
        scan.run(first)
        scan.depth -= 1
    elif name == "exec" or has(first, HIDDEN):
        scan.call.emit("exec.disguised" if has(first, HIDDEN) else "exec.unseen", "python exec")
    return UNKNOWN


def _getattr(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    base, attribute = args[0] if args else UNKNOWN, text_of(args[1]) if len(args) > 1 else ""
    return Ref(f"{base.name}.{attribute}") if isinstance(base, Ref) else Ref(f"value.{attribute}", base)


def _open(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    mode = text_of(args[1]) if len(args) > 1 else text_of(words.get("mode", "r"))
    if re.search(r"[wax+]", mode) or mode == UNKNOWN:
        _write(scan, "w" if "w" in mode else "touch", first, [first, "" if "w" in mode else FILE], words)
        return Ref("file:" + first, FILE)
    return scan.call.read(first)


def _write(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    """What is written over every file there is, and is not what was read from it, empties them all."""
    read = any(effect.kind == "read" and STAR in effect.target for effect in scan.call.machine.effects)
    wipes = name != "touch" and STAR in first and not scan.picking and not read
    text = text_of(args[1] if len(args) > 1 else words.get("data", ""))
    scan.call.write(first, text, *(["truncate"] if wipes else []))


def _argv(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    command = args[0] if args else ""
    for given in (one for one in (*args, words.get("env")) if isinstance(one, dict)):
        for key, value in given.items():
            scan.call.machine.set(key, text_of(value), scan.call.state.fork())
    if re.search(r"os\.(exec|spawn|posix_spawn)|create_subprocess_exec", name):
        flat = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
        texts = [text_of(item) for item in flat if not isinstance(item, int | dict | Ref)]
        twice = name.startswith("os.") and texts[1:] and texts[0].rsplit("/")[-1] == texts[1].rsplit("/")[-1]
        return scan.call.run(texts[1:] if twice else texts)
    if words.get("shell") and not isinstance(command, list):
        return _shell(scan, text_of(command))
    argv = [text_of(item) for item in command] if isinstance(command, list) else text_of(command).split() or [""]
    return scan.call.run(argv, Feed(text_of(words.get("input", words.get("stdin")))))


def _shell(scan: "PythonScan", text: str) -> Any:
    """A command for a shell; one that is not known at all is the project's own business."""
    return scan.call.shell(text) if text.strip(UNKNOWN) else scan.call.emit("exec.script", "python")


def _fetch(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    body = [*args[1:], *(words.get(key, "") for key in ("data", "json", "files", "params"))]
    marks = taints("".join(map(text_of, body)) + first)
    scan.call.send(marks, first) if has(marks, PRIVATE + ENCODED) else None
    scan.call.emit("net.fetch", first)
    metadata(scan.call, first)
    scan.call.write(args[1], NETWORK) if args[1:] and isinstance(args[1], str) else None
    return UNKNOWN if is_loopback(host_of(first)) else NETWORK


def _send(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    sent = "".join(text_of(arg) for arg in [*args[1:], *words.values()])
    scan.call.send(SENSITIVE + sent if name.startswith("send") and FILE in sent else sent, "remote")
    return NETWORK


def _chdir(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    scan.call.state.cwd = scan.call.locate(first)[0]


def _print(scan: "PythonScan", name: str, first: str, args: list[Any], words: Words) -> Any:
    return scan.say(" ".join(map(text_of, args)) + ("\n" if name == "print" else ""))


DO: dict[str, Callable[["PythonScan", str, str, list[Any], Words], Any]] = {
    "code": _code, "getattr": _getattr, "open": _open, "write": _write, "argv": _argv, "fetch": _fetch, "send": _send,
    "chdir": _chdir, "print": _print,
    "import": lambda scan, name, first, args, words: Ref(first if known(first) else "unknown"),
    "read": lambda scan, name, first, args, words: scan.call.read(first),
    "load": lambda scan, name, first, args, words: scan.call.load(text_of(args[-1]) if args else first),
    "unpack": lambda scan, name, first, args, words: scan.call.unpack(text_of(words.get("path", [*args, "."][1]))),
    "shell": lambda scan, name, first, args, words: _shell(scan, text_of(args[-1])) if args else None,
    "fork": lambda scan, name, first, args, words: scan.call.emit("process.forkbomb") if scan.looping else None,
    "temporary": lambda scan, name, first, args, words: f"/tmp/{ATOM}",
    "environment": lambda scan, name, first, args, words:
        scan.call.machine.set(first, text_of(args[-1]), scan.call.state) if args else None,
}  # fmt: skip

# -- methods: in the data, their names begin with a dot


def method(scan: "PythonScan", name: str, value: Any, args: list[Any], words: Words) -> Any:
    if isinstance(value, Ref) and value.name.startswith("file:"):
        if name in ("write", "writelines") and args:
            scan.call.machine.write_file(value.name[5:], text_of(args[0]), scan.call.state, append=True)
        return value
    done = _done(scan, kind_of(scan, f".{name}"), name, [value, *args], words)
    return _changed(scan, name, value, args, words) if done is None else done


def _changed(scan: "PythonScan", name: str, value: Any, args: list[Any], words: Words) -> Any:
    text, first = text_of(value), text_of(args[0]) if args else ""
    if name == "join" and args:
        return clip(text[:80].join(text_of(item) for item in many(args[0])))
    if name == "replace" and len(args) > 1 and first:
        return clip(text.replace(first, text_of(args[1])[:80]))
    if name in ("iterdir", "glob", "rglob"):
        return [f"{text.rstrip('/')}/{STAR}" if not first.strip("*/") else f"{text.rstrip('/')}/{ATOM}/{ATOM}"]
    if name == "split" and known(text):
        return text.split(first) if first else text.split()
    if name in _STRING_METHODS:
        return getattr(text, name)(*([first] if args else []))
    if name == "format":
        return formatted(text, [*args, *words.values()])
    if name in ("joinpath", "expanduser"):
        home = text.replace("~", scan.call.state.home(), 1)
        return joined([text, *map(text_of, args)]) if name == "joinpath" else home
    same = isinstance(value, str) and name in ("decode", "encode", "with_suffix", "with_name", "tobytes")
    return value if same or (name in _SAME and not args) else NETWORK if NETWORK in text else UNKNOWN


# -- functions that only compute


def _pure(scan: "PythonScan", name: str, kind: str, args: list[Any]) -> Any:
    """Text in, text out."""
    first, everything = text_of(args[0]) if args else "", "".join(text_of(arg) for arg in args)
    if name in PURE:
        return PURE[name](scan, first, args)
    if name.startswith("base64.") or name in ("binascii.hexlify", "json.dumps", "repr"):
        return (ENCODED if name[0] == "b" else "") + (taints(first) or first)
    if kind == "pass":
        whole = len(args) == 1 and not isinstance(args[0], Ref)
        return args[0] if whole else joined([text_of(arg) for arg in args])
    if kind == "network":
        return Ref("value.socket", NETWORK) if name.endswith("socket") else NETWORK
    if _CHANGES.match(name):
        return DISGUISED if everything and known(everything) else taints(everything)
    return part(taints(everything).replace(ATOM, "").replace(FILE, "")) or UNKNOWN


def _bytes(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    numbers = args[0] if args and isinstance(args[0], list) else []
    whole = bool(numbers) and all(isinstance(item, int) and 0 <= item < 256 for item in numbers)
    return "".join(map(chr, numbers)) if whole else args[0] if args else ""


def _range(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    whole = bool(args) and all(isinstance(arg, int) for arg in args) and args[2:3] != [0]
    return list(range(*args[:3])[:LOOP_LIMIT]) if whole else UNKNOWN


def _codec(scan: "PythonScan", first: str, args: list[Any]) -> Any:
    rot13 = len(args) > 1 and text_of(args[1]).replace("_", "") == "rot13" and known(first)
    return codecs.decode(first, "rot13") if rot13 else DISGUISED if known(first) else first


PURE: dict[str, Callable[["PythonScan", str, list[Any]], Any]] = {
    **dict.fromkeys(("glob.glob", "glob.iglob"), lambda _, first, args: [first.replace("*", STAR)]),
    **dict.fromkeys(("os.listdir", "os.scandir"), lambda _, first, args: [STAR]),
    **dict.fromkeys(("os.path.join", "posixpath.join"), lambda _, first, args: joined([text_of(arg) for arg in args])),
    **dict.fromkeys(("os.getcwd", "pathlib.Path.cwd"), lambda scan, first, args: scan.call.state.cwd),
    **dict.fromkeys(("os.getenv", "os.environ.get"), lambda scan, first, args: text_of(scan.call.state.get(first))),
    **dict.fromkeys(("input", "sys.stdin.read", "sys.stdin.readline"), lambda scan, *_: scan.call.stdin or UNKNOWN),
    **dict.fromkeys(("bytes.fromhex", "binascii.unhexlify"), lambda _, first, args:
        decode(first, lambda raw: binascii.unhexlify(re.sub(rb"\s", b"", raw)))),
    **dict.fromkeys(("codecs.decode", "codecs.encode"), _codec),
    **dict.fromkeys(("base64.b64decode", "base64.urlsafe_b64decode", "base64.decodebytes"),
        lambda _, first, args: decode(first, loose_base64)),
    **dict.fromkeys(("zlib.decompress", "gzip.decompress"), lambda _, first, args: decode(first, inflate)),
    "os.walk": lambda _, first, args: [[first, [STAR], [STAR]]],
    "os.path.expanduser": lambda scan, first, args: re.sub("^~", scan.call.state.home(), first),
    "pathlib.Path.home": lambda scan, first, args: scan.call.state.home(),
    "shlex.split": lambda _, first, args: first.split(),
    "chr": lambda _, first, args: char(args[0]) if args and isinstance(args[0], int) and args[0] >= 0 else UNKNOWN,
    "reversed": lambda _, first, args: list(reversed(many(args[0]))) if args else [],
    "map": lambda scan, first, args:
        [scan.invoke(args[0], [item], {}) for item in many(args[1])] if args[1:] and isinstance(args[0], Ref) else [],
    "range": _range, "bytes": _bytes, "bytearray": _bytes,
}  # fmt: skip
