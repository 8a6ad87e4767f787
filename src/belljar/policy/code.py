"""Code of other languages: who reads it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from . import expressions
from .call import Call
from .lexscan import LexScan, unknown_output
from .marks import NETWORK, UNKNOWN, show
from .python import scan_python

_REACHES = re.compile(
    r"system|exec|fork|set\w*uid|unlink|remove|rmdir|socket|kill|reboot|mount|open|rename|chmod|chown|truncate|syscall|"
    r"ptrace|unshare|setns|chroot|symlink|nftw|dlopen"
)
# A test that holds harmful text does nothing with it, unless it runs or deletes.
_DOES = re.compile(r"child_process|rmSync|\.rm\(|rm_rf|unlink|\bsystem\s*\(|FileUtils|shell_exec")


def scan(call: Call, language: str, code: str, argv: list[str]) -> str:
    """Look through code for effects; gives what it prints."""
    known_words = call.machine.knowledge.languages.get(language, {})
    if known_words:
        return _by_words(call, known_words, code)
    if NETWORK in code:
        call.emit("exec.network", show(code[:200]))
    if language == "notebook":
        return _notebook(call, code)
    if language.endswith(" hooks") and not language.startswith("python"):
        if not _DOES.search(code):
            return UNKNOWN
        language = language.removesuffix(" hooks")
    if language.startswith("python"):
        out = scan_python(call, code, argv, hooks=language != "python")
        if out is not None:
            return out
    if language == "c" and not _REACHES.search(code):
        return UNKNOWN
    if language == "tcl":
        code = _tcl(code)
    with call.machine.under(f"{call.name} ({language})"):
        scanner = LexScan(call, language, code, argv)
        scanner.run()
    return unknown_output(scanner.code, scanner.out)


def _by_words(call: Call, words: Mapping[str, Any], code: str) -> str:
    """A language that the data describe: what its statements run, write, read and destroy."""
    with call.machine.under(f"{call.name} code"):
        for kind, patterns in words["words"].items():
            for match in (one for pattern in patterns for one in expressions.found(pattern, code)):
                group = next((group for group in match.groups() if group), "")
                if kind == "run":
                    call.shell(group)
                elif kind in ("write", "read", "delete"):
                    getattr(call, kind)(group)
                elif kind.startswith("code:"):
                    call.scan(kind[5:], group, [])
                else:
                    call.emit(kind, match[0])
    if "also" in words:
        scan(call, words["also"], code, [])
    return UNKNOWN


def _notebook(call: Call, text: str) -> str:
    try:
        cells = json.loads(text)["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return UNKNOWN
    for code in codes[:100]:
        scan(Call(call.machine, "ipython", [], call.state, call.feed), "python", code, [])
    return UNKNOWN


def _tcl(code: str) -> str:
    for name, value in re.findall(r"\bset\s+(\w+)\s+[\"{]?([^\s\";$\]{}]+)", code)[:20]:
        code = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value.replace("\\", ""), code)
    code = re.sub(r"\b(?:exec|os:cmd)\s+(?!['\"])([^\n;\]]+)", lambda m: f"system({m[1]!r})", code)
    paths = re.compile(r"\bfile\s+delete\s+([^\n;\]]+)")
    code = paths.sub(lambda m: f"unlink({', '.join(repr(word) for word in m[1].split())})", code)
    return code.replace("[socket ", "socket( ")
