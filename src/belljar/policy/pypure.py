"""Python's pure functions, and those whose effect is one line: a table."""

import base64
import binascii
import codecs
import json
import re
from collections.abc import Callable
from typing import Any

from .decoders import inflate, loose_base64
from .marks import ATOM, DISGUISED, STAR, UNKNOWN, known, taints
from .pycalls import LOOP_LIMIT, PURE, SHORT, Calls
from .pyvalues import Ref, decode, integer, joined, many, part, text_of
from .quoting import char
from .shellstate import BASE_ENV


def _codec(_: Calls, first: str, args: list[Any]) -> Any:
    name = (text_of(args[1]) if len(args) > 1 else "utf-8").replace("_codec", "").replace("_", "").lower()
    if name == "rot13":
        return codecs.decode(first, "rot13") if known(first) else taints(first)
    if name in ("hex", "base64"):
        return decode(first, binascii.unhexlify if name == "hex" else base64.b64decode)
    return first if name.startswith(("utf", "ascii", "latin")) or not known(first) else DISGUISED


def _literal(_: Calls, first: str, args: list[Any]) -> Any:
    try:
        return json.loads(first)
    except (ValueError, RecursionError):
        return DISGUISED if known(first) else part(first)


def _bytes(_: Calls, first: str, args: list[Any]) -> Any:
    numbers = args[0] if args and isinstance(args[0], list) else []
    whole = bool(numbers) and all(isinstance(item, int) and 0 <= item < 256 for item in numbers)
    return "".join(map(chr, numbers)) if whole else args[0] if args else ""


def _range(_: Calls, first: str, args: list[Any]) -> Any:
    whole = bool(args) and all(isinstance(arg, int) for arg in args) and args[2:3] != [0]
    return list(range(*args[:3])[:LOOP_LIMIT]) if whole else UNKNOWN


def _map(scan: Calls, first: str, args: list[Any]) -> Any:
    given = args[1] if len(args) > 1 and isinstance(args[0], Ref) else []
    return [scan.invoke(args[0], [item], {}) for item in many(given)[:LOOP_LIMIT]]


def _unhex(_: Calls, first: str, args: list[Any]) -> str:
    return decode(first, lambda raw: binascii.unhexlify(re.sub(rb"\s", b"", raw)))


def _account(scan: Calls, first: str, args: list[Any]) -> Any:
    return [BASE_ENV["USER"], "x", 1000, 1000, "", scan.call.state.home(), "/bin/bash"]


def _from(name: str) -> Callable[[Calls, str, list[Any]], Any]:
    return lambda _, first, args: decode(first, getattr(base64, name))


def _attribute(_: Calls, first: str, args: list[Any]) -> Ref:
    base, attribute = args[0] if args else UNKNOWN, text_of(args[1]) if len(args) > 1 else ""
    return Ref(f"{base.name}.{attribute}") if isinstance(base, Ref) else Ref(f"value.{attribute}", base)


def _load(scan: Calls, first: str, args: list[Any]) -> Ref:
    scan.call.load(text_of(args[-1]) if args else first)
    return Ref("value.library", UNKNOWN)


def _kill(scan: Calls, first: str, args: list[Any]) -> None:
    scan.call.emit("process.killall") if first in ("-1", "1") or STAR in first else None


def _chdir(scan: Calls, first: str, args: list[Any]) -> None:
    scan.call.state.cwd = scan.call.locate(first)[0]


SHORT.update({
    "getattr": _attribute, "load": _load, "chdir": _chdir,
    "import": lambda _, first, args: Ref(first if known(first) else "unknown"),
    "namespace": lambda _, first, args: args[0] if args and isinstance(args[0], Ref) else Ref("builtins"),
    "shell": lambda scan, first, args: scan.run_text(first),
    "kill": _kill,
    "fork": lambda scan, first, args: scan.call.emit("process.forkbomb") if scan.looping else None,
    "temporary": lambda _, first, args: f"/tmp/{ATOM}",
})  # fmt: skip
PURE.update({
    **dict.fromkeys(("glob.glob", "glob.iglob"), lambda _, first, args: [first.replace("*", STAR)]),
    **dict.fromkeys(("os.listdir", "os.scandir"), lambda _, first, args: [STAR]),
    "os.walk": lambda _, first, args: [[first, [STAR], [STAR]]],
    **dict.fromkeys(("os.path.join", "posixpath.join"), lambda _, first, args: joined([text_of(arg) for arg in args])),
    "os.path.expanduser": lambda scan, first, args: re.sub("^~", scan.call.state.home(), first),
    "pathlib.Path.home": lambda scan, first, args: scan.call.state.home(),
    **dict.fromkeys(("os.getcwd", "pathlib.Path.cwd"), lambda scan, first, args: scan.call.state.cwd),
    **dict.fromkeys(("os.getenv", "os.environ.get"), lambda scan, first, args: text_of(scan.call.state.get(first))),
    **dict.fromkeys(("getpass.getuser", "os.getlogin"), lambda _, first, args: BASE_ENV["USER"]),
    **dict.fromkeys(("pwd.getpwuid", "pwd.getpwnam"), _account),
    **dict.fromkeys(("input", "sys.stdin.read", "sys.stdin.readline"), lambda scan, *_: scan.call.stdin or UNKNOWN),
    "shlex.split": lambda _, first, args: first.split(),
    "chr": lambda _, first, args: char(args[0]) if args and isinstance(args[0], int) and args[0] >= 0 else UNKNOWN,
    "ord": lambda _, first, args: ord(first) if len(first) == 1 else UNKNOWN,
    "int": lambda _, first, args: integer(args) if args else UNKNOWN,
    "len": lambda _, first, args: len(args[0]) if args and isinstance(args[0], str | list) else UNKNOWN,
    "reversed": lambda _, first, args: list(reversed(many(args[0]))) if args else [],
    "map": _map, "range": _range, "bytes": _bytes, "bytearray": _bytes,
    **dict.fromkeys(("bytes.fromhex", "binascii.unhexlify", "binascii.a2b_hex", "bytearray.fromhex"), _unhex),
    **dict.fromkeys(("codecs.decode", "codecs.encode", "codecs.getdecoder"), _codec),
    **dict.fromkeys(
        ("base64.b64decode", "base64.standard_b64decode", "base64.urlsafe_b64decode", "base64.decodebytes",
         "binascii.a2b_base64"), lambda _, first, args: decode(first, loose_base64)),
    **{f"base64.{name}": _from(name) for name in ("b32decode", "b16decode", "b85decode", "a85decode")},
    **dict.fromkeys(("zlib.decompress", "gzip.decompress"), lambda _, first, args: decode(first, inflate)),
    **dict.fromkeys(("json.loads", "ast.literal_eval"), _literal),
})  # fmt: skip
