"""python: where its code comes from (-c, -m, a file of this command, standard input)."""

import re

from . import expressions
from .call import Call, program
from .knowledge import tables
from .marks import DISGUISED, FILE, UNKNOWN, known, solid, taints, unglob
from .pyscan import PythonScan

_AS_PROGRAM = frozenset(["pip", "pytest", "build", "mypy", "ruff", "black", "tox", "poetry", "uv", "base64", "twine"])
_TESTS = frozenset(["unittest", "nose2", "coverage"])


def scan_python(call: Call, code: str, argv: list[str]) -> str | None:
    """What it prints; None where it could not be read."""
    state = call.state
    call.state = state.fork()
    if call.name == "ipython":
        code = re.sub(r"(?m)^[!%](?:sx\s+)?(.+)$", lambda m: f"__import__('os').system({m[1]!r})", code)
    try:
        with call.machine.under(f"{call.name} (python)"):
            for effect, signs in tables()["language"]["python"]["words"].items():
                call.emit(effect) if all(expressions.search(sign, code) for sign in signs) else None
            scanner = PythonScan(call, argv)
            if not scanner.run(code):
                return None
    finally:
        call.state = state
    if scanner.out and not known(scanner.out) and not taints(scanner.out).strip(UNKNOWN):
        return DISGUISED
    return scanner.out or UNKNOWN


@program("python python2 python3 pypy pypy3 ipython pythonw micropython")
def _python(call: Call) -> str | None:
    args = [solid(arg) for arg in call.args]
    for index, arg in enumerate(args):
        found = re.fullmatch(r"-[BEIOPSbdiqsuvx]*([cm])(.*)", arg, re.S)
        if found:
            text = found[2] or (call.args[index + 1] if index + 1 < len(args) else "")
            rest = call.args[index + (1 if found[2] else 2) :]
            return call.scan("python", unglob(text), rest) if found[1] == "c" else _module(call, solid(text), rest)
        if arg == "-":
            return _fed(call, call.args[index + 1 :])
        if not arg.startswith("-") and args[index - 1] not in ("-W", "-X"):
            return call.run_code("python", call.args[index:])
    return _fed(call, [])


def _fed(call: Call, rest: list[str]) -> str | None:
    return call.scan("python", call.stdin, rest) if call.stdin.strip(FILE + "\n") else None


def _module(call: Call, module: str, rest: list[str]) -> str | None:
    for path in (".py", "/__main__.py"):
        written = call.machine.read_file(module.replace(".", "/") + path, call.state)
        call.scan("python", written, rest) if written else None
    if module in _AS_PROGRAM | _TESTS:
        return call.run([module if module in _AS_PROGRAM else "pytest", *rest])
    if module in ("zipfile", "tarfile") and {"-e", "--extract"} & set(rest):
        call.unpack(rest[-1])
    words = [arg for arg in rest if not arg.startswith("-")]
    if module in ("cProfile", "trace", "doctest", "pdb") and words:
        call.run_code("python", words)
    for path in rest:
        call.serve(path) if module == "http.server" else call.read(path) if call.locate(path)[1] == "secret" else None
    call.emit("exec.build") if module == "http.server" else None
    return FILE if module == "json.tool" else None
