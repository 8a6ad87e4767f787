"""The bash parser: shfmt in a child process with limits.

Starting shfmt takes 3 ms, longer than the parse. It reads all of standard input first, so we keep spare processes that
wait for input; a parse takes one, and a new one is started afterwards. Each process parses one text and exits, so no
input can influence the next parse. Memory, CPU time, wall-clock time and the size of the tree are limited. If a limit
is reached or shfmt is missing, the command is denied.
"""

import atexit
import contextlib
import functools
import json
import os
import re
import resource
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

MAX_TREE = 12_000_000  # bytes of JSON; shfmt's tree is quadratic on long && chains
MAX_SECONDS = 20.0  # a last resort, like the limit of CPU time: that of the tree is the same on any machine
SPARE_PROCESSES = 2  # a command often contains a second text, as in bash -c
_MAX_MEMORY = (
    600 << 20
)  # of private writable memory; Go reserves address space freely, so RLIMIT_AS would misfire
_MAX_CPU = 2
_ADVICE = "put it in a script file and run that"

Node = dict[str, Any]
Child = Any  # a subprocess.Popen[bytes]: that module is imported when a text is parsed, not with the policy


class TooComplex(Exception):
    """The command reached a limit of the interpreter; it is denied."""


class NeedsParser(Exception):
    """A text needs the parser, but the caller must not wait for it."""


class ParseError(Exception):
    """The text cannot be parsed; the message says why."""


@functools.cache
def shfmt() -> str | None:
    import shutil
    import sysconfig

    folders = (sysconfig.get_path("scripts"), os.path.dirname(sys.executable))
    beside = (os.path.join(folder, "shfmt") for folder in folders)
    return next(
        (path for path in beside if os.access(path, os.X_OK)), None
    ) or shutil.which("shfmt")


class Parser:
    """Parses texts. Safe in threads and after a fork: a child never uses its parent's processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: list[Child] = []
        self._pid = os.getpid()
        self._closed = False

    def parse(self, text: str) -> Node:
        child = self._take_process()
        cap_reached = "interrupted"
        try:
            tree, cap_reached = _exchange(child, text.encode("utf-8", "surrogatepass"))
        finally:
            _end(child, kill=bool(cap_reached))
            self._refill_soon()
        if cap_reached:
            raise TooComplex(f"{cap_reached}; {_ADVICE}")
        if child.returncode:
            raise _error_for(tree, child.returncode)
        return _decode(tree)

    def _take_process(self) -> Child:
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._spare = []
            child = self._spare.pop() if self._spare else None
        if child is not None and child.poll() is None:
            return child
        if child is not None:
            _end(child)
        return _spawn()

    def _refill_soon(self) -> None:
        """Start the next process after the parse; at the same time it would slow the parse by half."""
        if len(self._spare) < SPARE_PROCESSES:
            threading.Thread(
                target=self.refill, name="belljar-parser", daemon=True
            ).start()

    def refill(self) -> None:
        while len(self._spare) < SPARE_PROCESSES and not self._closed:
            try:
                child = _spawn()
            except ParseError:
                return
            with self._lock:
                self._spare.append(child)
        if self._closed:
            self.close()

    def close(self) -> None:
        with self._lock:
            children = self._spare
            self._spare = []
            self._closed = True
        for child in children if self._pid == os.getpid() else []:
            _end(child)


def _spawn() -> Child:
    import subprocess

    if (program := shfmt()) is None:
        raise ParseError(
            "the shell parser (shfmt) is not installed; install the package shfmt-py"
        )
    try:
        child = subprocess.Popen(
            [program, "-ln=bash", "--to-json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"GOMAXPROCS": "1", "GOGC": "400"},
            bufsize=0,
        )
    except OSError as error:
        raise ParseError(
            f"the shell parser does not start: {error.strerror}"
        ) from error
    _cap(child.pid)
    return child


def _cap(pid: int) -> None:
    """Set limits from outside: a preexec_fn is not safe in a program with threads."""
    try:
        resource.prlimit(pid, resource.RLIMIT_DATA, (_MAX_MEMORY, _MAX_MEMORY))
        resource.prlimit(pid, resource.RLIMIT_CPU, (_MAX_CPU, _MAX_CPU))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except (ProcessLookupError, PermissionError, AttributeError):
        pass  # it has ended, which the parse notices; or this is not Linux


def _exchange(child: Child, text: bytes) -> tuple[bytes, str]:
    """Write the text, then read the tree or the error message. Returns it, and the limit that was reached."""
    deadline = time.monotonic() + MAX_SECONDS
    pending = memoryview(text)
    chunks = [b""]
    size = 0
    while pending and _ready(child.stdin.fileno(), select.POLLOUT, deadline):
        try:
            pending = pending[
                os.write(child.stdin.fileno(), pending[: select.PIPE_BUF]) :
            ]
        except BrokenPipeError:
            break
    child.stdin.close()
    while not size or chunks[-1]:
        if not _ready(child.stdout.fileno(), select.POLLIN, deadline):
            return b"", "it takes too long to parse"
        chunks.append(os.read(child.stdout.fileno(), 1 << 20))
        size += len(chunks[-1]) or 1
        if size > MAX_TREE:
            return b"", "it is too large to judge (its syntax tree grows without bound)"
    return b"".join(chunks), ""


def _ready(fd: int, event: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(max(0, deadline - time.monotonic()) * 1000))


def _end(child: Child, kill: bool = True) -> None:
    """Wait for a child. One that has closed its output is about to exit; kill any other."""
    if kill:
        child.kill()
    for end in (child.stdin, child.stdout):
        if end is not None:
            with contextlib.suppress(OSError):
                end.close()
    child.wait()


def _error_for(errors: bytes, code: int) -> Exception:
    first = errors.decode("utf-8", "replace").strip().splitlines()[:1]
    if code < 0 or code == 2 or not first or "goroutine" in first[0]:
        return TooComplex(
            f"the shell parser was killed (over its memory or time cap); {_ADVICE}"
        )
    return ParseError(
        "it is not valid bash: " + first[0].removeprefix("<standard input>:")
    )


def _decode(tree: bytes) -> Node:
    try:
        node: Node = json.loads(tree)
        return node
    except RecursionError:
        raise TooComplex(f"it is nested too deeply to judge; {_ADVICE}") from None
    except ValueError:
        raise ParseError("the shell parser gave no readable tree") from None


_CACHED = 500  # characters; a tree is a thousand times as large, so we remember few longer ones
_parser = Parser()
atexit.register(_parser.close)


def parse(text: str) -> Node:
    """The syntax tree of a bash text. Callers share it: do not change it."""
    tree = _outcome(text) if len(text) <= _CACHED else _long_outcome(text)
    if isinstance(tree, Exception):
        raise tree
    return tree


@functools.lru_cache(maxsize=512)
def _outcome(text: str) -> Node | Exception:
    try:
        tree = _parsed(text)
        return _no_joined_comment(tree) if "\\\n" in text and "#" in text else tree
    except (ParseError, TooComplex) as error:
        if "parser" in str(error):
            raise  # missing or killed: try again next time
        return error.with_traceback(None)


_long_outcome = functools.lru_cache(maxsize=4)(_outcome.__wrapped__)


_WHERE = re.compile(r"it is not valid bash: (\d+):(\d+): ")
_MOST_APART = 20


def _parsed(text: str) -> Node:
    """The tree. To bash `((a | b) && (c))` is a subshell in another, as it cannot be arithmetic; to shfmt an error.

    There we write `( (`, and accept it only if both subshells begin just there, so that no text is changed.
    """
    data = text.encode("utf-8", "surrogatepass")
    apart = list[int]()
    wrong = None
    while True:
        try:
            tree = _parser.parse(data.decode("utf-8", "surrogatepass"))
        except ParseError as error:
            wrong = wrong or error
            at = (
                _double_parenthesis(data, str(error))
                if len(apart) < _MOST_APART
                else -1
            )
            if at < 0:
                raise wrong from None
            data = data[: at + 1] + b" " + data[at + 1 :]
            apart = [*(each + (each > at) for each in apart), at]
            continue
        if wrong is None or {(at, at + 2) for at in apart} <= set(
            _nested_subshells(tree)
        ):
            return tree
        raise wrong


def _double_parenthesis(data: bytes, error: str) -> int:
    """Where the last `((` before an error begins: shfmt may have read it as arithmetic. -1 if there is none."""
    if not (found := _WHERE.match(error)):
        return -1
    line = int(found[1])
    column = int(found[2])
    start = len(b"\n".join(data.split(b"\n")[: line - 1])) + (line > 1) + column - 1
    return data.rfind(b"((", 0, start + 3)


def _nested_subshells(node: object) -> Iterator[tuple[int, int]]:
    """Where a subshell, or a substitution, begins whose first command is a subshell; and where that begins."""
    if isinstance(node, list):
        for each in node:
            yield from _nested_subshells(each)
    if not isinstance(node, dict):
        return
    begins = {"Subshell": "Lparen", "CmdSubst": "Left"}.get(node.get("Type", ""))
    first = (node.get("Stmts") or [{}])[0]
    while first.get("Cmd", {}).get("Type") == "BinaryCmd":
        first = first["Cmd"]["X"]
    inner = first.get("Cmd") or {}
    if begins and inner.get("Type") == "Subshell":
        dollar = begins == "Left"
        yield node[begins]["Offset"] + dollar, inner["Lparen"]["Offset"]
    for each in node.values():
        yield from _nested_subshells(each)


def _no_joined_comment(node: object) -> Node:
    """Refuse a comment that ends in a backslash: shfmt joins the next line to it, bash runs that line."""
    if (
        isinstance(node, dict)
        and "Hash" in node
        and str(node.get("Text", "")).endswith("\\\n")
    ):
        raise ParseError(
            "a comment ends in a backslash, which shells and parsers read differently"
        )
    for child in (
        node.values()
        if isinstance(node, dict)
        else node
        if isinstance(node, list)
        else ()
    ):
        if isinstance(child, dict | list):
            _no_joined_comment(child)
    return node  # type: ignore[return-value]


def warm() -> None:
    """Start spare processes before the first command needs one."""
    _parser.refill()
