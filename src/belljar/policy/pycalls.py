"""What Python's libraries do when they are called: the effects, and the values that come back.

Which function does what is data: [language.python.calls] names the functions of each kind.
"""

import ast
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from . import expressions
from .call import Call
from .feed import Feed
from .files import is_loopback
from .machine import SUSPECT
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, SECRET, SENSITIVE, STAR, UNKNOWN, clip, has, known, taints
from .pyvalues import Ref, bounded, formatted, joined, many, mapping, part, repeated, text_of
from .quoting import listed
from .roles_net import host_of, metadata

LOOP_LIMIT = 256
MAX_DEPTH = 8
_SAME = frozenset(
    listed(
        "read decode encode readlines readline resolve absolute json items copy hex as_posix stdout output splitlines "
        "read1 values keys"
    )
)
_PATH_METHODS = frozenset(
    listed("unlink rmtree write_text write_bytes touch read_text read_bytes open rename chmod symlink_to")
)
_SENDS = frozenset(listed("send sendall sendto post put request publish sendmail storbinary"))
_STRING_METHODS = listed("lower upper swapcase title capitalize strip lstrip rstrip removeprefix removesuffix")

# By name, or by kind: what needs nothing but the arguments (pypure.py).
PURE: dict[str, Callable[["Calls", str, list[Any]], Any]] = {}
SHORT: dict[str, Callable[["Calls", str, list[Any]], Any]] = {}


class Calls:
    """One half of the Python reader; the other walks statements and works out values."""

    call: Call
    names: dict[str, Any]
    functions: dict[str, Any]
    methods: dict[str, Any]
    classes: set[str]
    out: str
    depth: int
    looping: bool
    picking: int
    held: list[str]
    spawned: list[str]

    @abstractmethod
    def run(self, code: str) -> bool: ...

    @abstractmethod
    def body(self, statements: list[ast.stmt]) -> None: ...

    @abstractmethod
    def value(self, node: ast.AST | None) -> Any: ...

    def invoke(self, function: Ref, args: list[Any], words: dict[str, Any]) -> Any:
        name = function.name
        for text in [text_of(value) for value in [*args, *words.values()]] if name != "print" else []:
            if text.endswith(".sock") and "engine" in self.call.locate(re.sub(r"^[\w+]+://?(?=/)", "", text))[2]:
                self.call.emit("kernel.engine", text)
        if self.depth < MAX_DEPTH:
            if name in self.classes:  # __init__, and what may be called without a call: __exit__, __del__, __str__
                for method in [method for name, method in self.methods.items() if re.fullmatch(r"__\w+__", name)]:
                    self.user(method, [UNKNOWN, *args], words)
                return Ref("instance", UNKNOWN)
            if name.startswith("value.") and name[6:] in self.methods:
                return self.user(self.methods[name[6:]], [function.bound, *args], words)
            if name in self.functions:
                return self.user(self.functions[name], args, words)
        if function.bound is not None:
            return self._method(name.removeprefix("value."), function.bound, args, words)
        return self._library(re.sub(r"^(__)?builtins(__)?\.", "", name), args, words)

    def user(self, node: Any, args: list[Any], words: dict[str, Any]) -> Any:
        self.depth += 1
        given, names = node.args, node.args.args
        defaults = list(zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True))
        defaults += [(name, value) for name, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
        self.names.update({parameter.arg: self.value(default) for parameter, default in defaults})
        self.names.update({parameter.arg: value for parameter, value in zip(names, args, strict=False)})
        if given.vararg:
            self.names[given.vararg.arg] = args[len(names) :]
        self.names |= {**words, "return": None}
        if isinstance(node, ast.Lambda):
            self.names["return"] = self.value(node.body)
        else:
            self.body(node.body)
        self.depth -= 1
        return self.names.get("return")

    def _kind(self, name: str) -> str:
        kinds = self.call.machine.knowledge.languages["python"]["calls"].items()
        return next((kind for kind, pattern in kinds if expressions.fullmatch(pattern, name)), "")

    def _library(self, name: str, args: list[Any], words: dict[str, Any]) -> Any:
        kind, first = self._kind(name), text_of(args[0]) if args else text_of(words.get("path", ""))
        if kind in SHORT:
            return SHORT[kind](self, first, args)
        act = getattr(self, f"_do_{kind}", None)
        if act is not None:
            return act(name, first, args, words)
        handed = self._handed(args, words)
        if handed is not None:
            return handed
        if kind and kind not in ("pass", "network"):
            self.call.emit(kind, name)
        return self._by_verb(name, first) or self._pure(name, kind, first, args, words)

    def _do_print(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        self.out = clip(self.out + " ".join(text_of(arg) for arg in args) + ("\n" if name == "print" else ""))
        return UNKNOWN

    def _do_code(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        text = first if args else text_of(next(iter(words.values()), ""))
        if name == "compile":
            return text
        if has(text, NETWORK):
            self.call.emit("exec.network", "python exec")
        elif name.endswith(".loads"):
            if name != "marshal.loads" and (known(text) or has(text, DISGUISED)):
                self.call.emit("exec.disguised", name)
            return DISGUISED
        elif known(text) and self.depth < MAX_DEPTH:
            self.depth += 1
            if not self.run(text) and name == "exec":
                self.call.emit("exec.disguised" if len(text) > 200 else "exec.unseen", text)
            self.depth -= 1
        elif name == "exec" or has(text, ENCODED + DISGUISED):
            self.call.emit("exec.disguised" if has(text, ENCODED + DISGUISED) else "exec.unseen", "python exec")
        return UNKNOWN

    def _do_file_code(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        texts = [self.call.machine.read_file(text_of(arg), self.call.state) or "" for arg in args[:2]]
        return self._do_code("exec", "".join(texts), ["".join(texts)], {})

    def _do_open(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        path = first if args else text_of(words.get("file", ""))
        mode = text_of(args[1]) if len(args) > 1 else text_of(words.get("mode", "r"))
        if re.search(r"[wax+]", mode) or (len(args) > 1 and (not isinstance(args[1], str) or args[1] == UNKNOWN)):
            self._overwrite(path, "" if "w" in mode else FILE, "w" in mode)
            return Ref("file:" + path, FILE)
        return self.call.read(path)

    def run_text(self, text: str) -> str:
        if NETWORK in text:
            self.call.emit("exec.network", text)
        elif text.strip(UNKNOWN) == "" and UNKNOWN in text:
            self.call.emit("exec.script", text)
            for suspect in [line.partition("=")[2] or line for held in self.held for line in held.splitlines()]:
                self.call.shell(suspect) if SUSPECT.match(suspect) else None
            return UNKNOWN
        return self.call.shell(text)

    def _do_argv(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        command = args[0] if args else words.get("args", "")
        for key, value in [
            item for given in (*args, words.get("env")) if isinstance(given, dict) for item in given.items()
        ]:
            self.call.machine.set(key, text_of(value), self.call.state.fork())
        if re.search(r"os\.(exec|spawn|posix_spawn)|create_subprocess_exec", name):
            flat = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
            texts = [text_of(item) for item in flat if not isinstance(item, int | dict | Ref)]
            twice = name.startswith("os.") and texts[1:] and texts[0].rsplit("/")[-1] == texts[1].rsplit("/")[-1]
            return self.call.run(texts[1:] if twice else texts)
        argv = [text_of(item) for item in command] if isinstance(command, list) else text_of(command).split() or [""]
        self.spawned = argv if "stdin" in words else self.spawned
        feed = Feed(text_of(words["input"])) if "input" in words else Feed(text_of(words.get("stdin")))
        whole = words.get("shell") and not isinstance(command, list)
        return self.run_text(text_of(command)) if whole else self.call.run(argv, feed)

    def _do_delete(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        path = first.replace(STAR, ATOM) if self.picking else first
        self.call.delete(path, *(["recursive"] if re.search("rmtree|removedirs", name) else []))
        return UNKNOWN

    def _do_program(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        """Functions that do what a program does: shutil.move, os.symlink, os.chmod …"""
        second = args[1] if len(args) > 1 else ATOM
        verb = name.rsplit(".", 1)[-1]
        if verb in ("chmod", "lchmod", "chown"):
            mode = f"{second:o}" if isinstance(second, int) and verb != "chown" else text_of(second)
            self.call.run([verb.removeprefix("l"), mode, first])
        else:
            words_of = {"symlink": "ln -s", "link": "ln"}.get(
                verb, "cp -r" if verb.startswith("copy") else "mv"
            ).split()
            self.call.run([*words_of, first, text_of(second)])
        return UNKNOWN

    def _do_fetch(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        body = [*args[1:], *(words.get(key, "") for key in ("data", "json", "files", "params"))]
        marks = taints("".join(map(text_of, body)) + first)
        if has(marks, SECRET + SENSITIVE + ENCODED):
            self.call.send(marks, first)
        self.call.emit("net.fetch", first)
        metadata(self.call, first)
        if args[1:] and isinstance(args[1], str):
            self.call.write(args[1], NETWORK)
        return UNKNOWN if is_loopback(host_of(first)) else NETWORK

    def _do_environment(self, name: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        given = mapping(*args, words) if name.endswith("update") else {first: args[1]} if len(args) > 1 else {}
        for key, value in given.items():
            self.call.machine.set(key, text_of(value), self.call.state)
        return UNKNOWN

    def _handed(self, args: list[Any], words: dict[str, Any]) -> Any:
        """A function that runs something, handed to another (a thread, a pool, atexit, partial) with its arguments."""
        given = [*args, *words.values()]
        for index, value in enumerate(given):
            name = value.name.removeprefix("builtins.") if isinstance(value, Ref) and value.bound is None else ""
            kind = self._kind(name) if name else ""
            if kind in ("shell", "argv", "delete") or name in ("exec", "eval"):
                rest = given[index + 1 :] or given[:index]
                rest = rest[0] if len(rest) == 1 and isinstance(rest[0], list) else rest
                for each in [rest] if kind == "argv" else [[item] for item in rest]:
                    self._library(name, each, {})
                return Ref(name)
        return None

    def _by_verb(self, name: str, path: str) -> str:
        """A function of a library that nobody described, whose name says what it does with a path."""
        verb = name.rsplit(".", 1)[-1] if path[:1] in ("/", "~") else ""
        if re.match(r"to_|save|write_|export|dump", verb):
            self.call.write(path)
        reads = re.match(r"read(_|$)|load|scan_|imread|fromfile|genfromtxt|parse|netrc|getlines", verb)
        return self.call.read(path) if reads else ""

    def _method(self, name: str, value: Any, args: list[Any], words: dict[str, Any]) -> Any:
        text, first = text_of(value), text_of(args[0]) if args else ""
        self._handed(args, words)
        if isinstance(value, Ref) and value.name.startswith("file:"):
            if name in ("write", "writelines"):
                self.call.machine.write_file(value.name[5:], first, self.call.state, append=True)
            self.call.read(first) if name == "add" else None  # to an archive
            return value
        if name in ("system", "popen", "spawn"):
            return self.run_text(first)
        if name in _PATH_METHODS:
            return self._path_method(name, text, args, words)
        if name in _SENDS:
            sent = "".join(text_of(arg) for arg in [*args, *words.values()])
            self.call.send(SENSITIVE + sent if name.startswith("send") and FILE in sent else sent, "remote")
            return NETWORK
        if not known(text) and self._kind(f"ctypes.{name}") == "kernel.namespace":
            self.call.emit("kernel.namespace", f"ctypes {name}")
        if name in ("communicate", "write", "sendline") and self.spawned and known(first):
            return self.call.run(self.spawned, Feed(first))
        if name == "run" and text == UNKNOWN and self.call.is_program("".join(first.split()[:1])):
            return self.run_text(" ".join(map(text_of, args)))  # nox, invoke, fabric
        if name in ("extractall", "extract"):
            self.call.unpack(text_of(args[-1]) if args else text_of(words.get("path", ".")))
            return UNKNOWN
        return self._value_method(name, value, text, first, args, words)

    def _value_method(
        self, name: str, value: Any, text: str, first: str, args: list[Any], words: dict[str, Any]
    ) -> Any:
        if name == "join" and args:
            items = [text_of(item) for item in many(args[0])]
            return repeated(text, len(items), lambda: text.join(items))
        if name == "replace" and len(args) > 1 and not isinstance(args[1], int):
            new, times = text_of(args[1]), text.count(first) if known(first) and first else 0
            return repeated(new, times, lambda: text.replace(first, new)) if times else text
        if name == "format":
            return formatted(text, args, words)
        if name in ("iterdir", "glob", "rglob"):
            return [f"{text.rstrip('/')}/{STAR}" if not first.strip("*/") else f"{text.rstrip('/')}/{ATOM}/{ATOM}"]
        if name == "split" and known(text):
            return text.split(first) if first else text.split()
        if name == "decode" and first in ("hex", "base64", "rot13", "rot_13"):
            return self._pure("codecs.decode", "", text, [text, first], {})
        if isinstance(value, dict) and name == "get":
            return value.get(first, UNKNOWN)
        if isinstance(value, dict) and name == "update":
            value |= mapping(*args, words)
            return None
        if isinstance(value, list) and name in ("append", "extend", "insert"):
            value += many(args[-1]) if name == "extend" and args else args[-1:]
            return bounded(value) and None
        if name in _STRING_METHODS:
            return getattr(text, name)(*([first] if args else []))
        if name == "joinpath":
            return joined([text, *map(text_of, args)])
        if name == "expanduser":
            return text.replace("~", self.call.state.home(), 1)
        self._by_verb(name, first)
        if name in ("translate", "to_bytes"):
            return DISGUISED if known(text) else taints(text)
        if isinstance(value, list) and name in ("read", "readline"):
            return "\n".join(text_of(item) for item in value) if name == "read" else text_of(value[0]) if value else ""
        if name in _SAME and not args:
            return value
        same = isinstance(value, str) and name in ("read", "decode", "encode", "with_suffix", "with_name", "tobytes")
        return text if same else NETWORK if NETWORK in text else UNKNOWN

    def _path_method(self, name: str, text: str, args: list[Any], words: dict[str, Any]) -> Any:
        first = text_of(args[0]) if args else ""
        if name in ("unlink", "rmtree"):
            self._do_delete(name, text, [], {})
        elif name in ("write_text", "write_bytes", "touch"):
            self._overwrite(text, first or text_of(words.get("data", "")), name != "touch")
        elif name in ("read_text", "read_bytes"):
            return self.call.read(text)
        elif name == "open":
            return self._do_open(name, text, [text, *args], words)
        elif name == "symlink_to":
            self.call.run(["ln", "-s", first, text])
        else:
            self._do_program(name, text, [text, *args], words)
        return UNKNOWN

    def _overwrite(self, path: str, text: str, anew: bool) -> None:
        """What is written over every file there is, and is not what was read from it, empties them all."""
        read = any(effect.kind == "read" and STAR in effect.target for effect in self.call.machine.effects)
        wipes = anew and STAR in path and not self.picking and not read
        self.call.write(path, text, *(["truncate"] if wipes else []))

    def _pure(self, name: str, kind: str, first: str, args: list[Any], words: dict[str, Any]) -> Any:
        """Text in, text out."""
        work = PURE.get(name)
        if work is not None:
            return work(self, first, args)
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
        if re.match(
            r"(html|re|struct|quopri|uu|binascii|codecs|string|urllib\.parse|bz2|lzma)\.(?!compile|match|search)", name
        ):
            return DISGUISED if everything and known(everything) else taints(everything)
        return part(taints(everything).replace(ATOM, "").replace(FILE, "")) or UNKNOWN
