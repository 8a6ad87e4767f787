"""What Python's libraries do when they are called: the effects, and the values that come back."""

import ast
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from .compound import Feed
from .machine import SUSPECT
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, SECRET, SENSITIVE, STAR, UNKNOWN, clip, has, known, taints
from .pypure import Pure
from .pyvalues import Ref, _codec, _format, _join, _many, _text, bounded, mapping, repeated
from .quoting import listed

_SHELL = re.compile(
    r"(os\.(system|popen\d?)|subprocess\.(getoutput|getstatusoutput)|commands\.\w+|pty\.spawn|"
    r"asyncio\.create_subprocess_shell|platform\.popen|posix\.system|.*\.(system|popen))"
)
_ARGV = re.compile(
    r"(subprocess\.(run|call|check_call|check_output|Popen)|asyncio\.create_subprocess_exec|os\.(exec|"
    r"spawn|posix_spawn)\w*|.*\.(Popen|check_output|check_call|create_subprocess_exec))"
)
_DELETE = re.compile(
    r"(os\.(remove|unlink|removedirs|rmdir)|shutil\.rmtree|pathlib\.Path\.(unlink|rmdir)|send2trash.*|"
    r".*\.rmtree|posix\.(unlink|remove))"
)
_CODE = re.compile(
    r"timeit\.(timeit|repeat)|(cP|p)rofile\.run(ctx)?|(b|p)db\.run\w*|code\.\w+|(marshal|c?[pP]ickle|dill|cloudpickle)\.loads"
)
_LOADS = re.compile(
    r"(ctypes\.)?(CDLL|PyDLL|(ctypes\.)?(cdll|pydll)\.LoadLibrary|cdll\.LoadLibrary)|cffi\.FFI\.dlopen|ffi\.dlopen|sys\.path\.(insert|append)"
)
_FILE_CODE = re.compile(r"runpy\.run_path|imp\.load_source|importlib\.util\.spec_from_file_location|execfile")
_SERVES = re.compile(
    r"(.*[._])?(start_server|start_unix_server|create_server|serve|make_server|run_simple|(?<!_)register_function|add_url_rule|add_\w*route|add_(get|post))|.*Server"
)
_MOVE = re.compile(r"(shutil\.move|os\.(rename|renames|replace))")
_COPY = re.compile(r"(shutil\.copy\w*|os\.(link|symlink))")
_FETCH = re.compile(
    r"(urllib\.request\.(urlopen|urlretrieve|Request)|urllib2?\.(urlopen|urlretrieve)|requests\.\w+|"
    r"httpx\.\w+|http\.client\.\w+|urllib3\..*|aiohttp\..*|.*\.urlopen)"
)


class Library(Pure):
    """Calls of the Python reader; it is one half of PythonScan."""

    functions: dict[str, Any]
    classes: set[str]
    methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]
    handlers: list[Any]
    out: str
    depth: int
    looping: bool
    picking: int
    held: list[str]  # the literals of the code
    spawned: list[str]  # the process that waits for input

    @abstractmethod
    def run(self, code: str) -> bool: ...

    @abstractmethod
    def body(self, statements: list[ast.stmt]) -> None: ...

    @abstractmethod
    def value(self, node: ast.AST | None) -> Any: ...

    # -- calls ---------------------------------------------------------------------------------------------------

    def invoke(self, function: Ref, args: list[Any], words: dict[str, Any]) -> Any:
        name = function.name
        for text in [_text(value) for value in [*args, *words.values()]] if name != "print" else []:
            if (
                text.endswith(".sock")
                and "engine" in self.call.locate(re.sub(r"^[\w+]+://(?=/)|^unix:/(?=/\w)", "", text))[2]
            ):
                self.call.emit("kernel.engine", text)
        for value in [*args, *words.values()] if _SERVES.fullmatch(name) else []:
            given = value.name if isinstance(value, Ref) else ""
            self.handlers += [self.functions[given]] if given in self.functions else []
            self.call.emit("net.shell") if _SHELL.fullmatch(given) or _ARGV.fullmatch(given) else None
        if name in self.classes and self.depth < 8:
            special = [method for name, method in self.methods.items() if re.fullmatch(r"__\w+__", name)]
            for method in special:  # __init__, and what may be called without a call: __exit__, __del__, __str__
                self._user(method, [UNKNOWN, *args], words)
            return Ref("instance", UNKNOWN)
        if name.startswith("value.") and name[6:] in self.methods and self.depth < 8:
            return self._user(self.methods[name[6:]], [function.bound, *args], words)
        if name in self.functions and self.depth < 8:
            return self._user(self.functions[name], args, words)
        if function.bound is not None:
            return self._method(name.removeprefix("value."), function.bound, args, words)
        name = name.removeprefix("builtins.").removeprefix("__builtins__.")
        return self._library(name, args, words)

    def _user(self, node: Any, args: list[Any], words: dict[str, Any]) -> Any:
        self.depth += 1
        given, names = node.args, node.args.args
        for parameter, default in [
            *zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True),
            *((name, value) for name, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value),
        ]:
            self.names[parameter.arg] = self.value(default)
        for parameter, value in zip(names, args, strict=False):
            self.names[parameter.arg] = value
        if given.vararg:
            self.names[given.vararg.arg] = args[len(names) :]
        self.names.update(words)
        self.names["return"] = None
        if isinstance(node, ast.Lambda):
            self.names["return"] = self.value(node.body)
        else:
            self.body(node.body)
        self.depth -= 1
        return self.names.get("return")

    def _library(self, name: str, args: list[Any], words: dict[str, Any]) -> Any:
        call, first = self.call, _text(args[0]) if args else ""
        if name in ("print", "sys.stdout.write", "os.write", "sys.stdout.buffer.write"):
            self.out = clip(self.out + " ".join(_text(arg) for arg in args) + ("\n" if name == "print" else ""))
        elif name in ("exec", "eval", "compile") or _CODE.fullmatch(name):
            return self._dynamic(name, args or list(words.values()))
        elif _FILE_CODE.fullmatch(name):
            texts = [call.machine.read_file(_text(arg), call.state) or "" for arg in args[:2]]
            return self._dynamic("exec", ["".join(texts)])
        elif _LOADS.fullmatch(name):
            call.load(_text(args[-1]) if name.startswith("sys") else first)
        elif name == "operator.methodcaller":
            return self._method(first, UNKNOWN, args[1:], words)
        elif name in ("__import__", "importlib.import_module"):
            return Ref(first) if known(first) else Ref("unknown")
        elif name == "getattr" and len(args) > 1:
            base = args[0]
            return (
                Ref(f"{base.name}.{_text(args[1])}") if isinstance(base, Ref) else Ref(f"value.{_text(args[1])}", base)
            )
        elif name in ("vars", "globals", "locals"):
            return args[0] if args and isinstance(args[0], Ref) else Ref("builtins")
        elif name in ("open", "io.open", "os.open", "codecs.open", "gzip.open", "zipfile.ZipFile", "tarfile.open"):
            return self._open(args, words)
        elif _SHELL.fullmatch(name):
            command = (
                args[0] if args and not isinstance(args[0], list) else " ".join(map(_text, args[0])) if args else ""
            )
            return self._run_text(_text(command))
        elif _ARGV.fullmatch(name):
            return self._run_argv(name, args, words)
        elif _DELETE.fullmatch(name):
            if name not in ("os.rmdir", "pathlib.Path.rmdir"):
                path = first or _text(words.get("path"))
                call.delete(
                    path.replace(STAR, ATOM) if self.picking else path,
                    *(["recursive"] if "rmtree" in name or "removedirs" in name else []),
                )
        elif _MOVE.fullmatch(name) or _COPY.fullmatch(name):
            program = (
                "mv"
                if _MOVE.fullmatch(name)
                else "ln -s"
                if "symlink" in name
                else "ln"
                if name.endswith("link")
                else "cp -r"
            )
            call.run([*program.split(), first, _text(args[1]) if len(args) > 1 else ""])
        elif _FETCH.fullmatch(name):
            return self._fetch(first, args, words)
        elif (handed := self._handed(args, words)) is not None:
            return handed
        else:
            return self._minor(name, args, words)
        return UNKNOWN

    def _handed(self, args: list[Any], words: dict[str, Any]) -> Any:
        """A function that runs something, handed to another (a thread, a pool, atexit, partial) with its arguments."""
        given = [*args, *words.values()]
        for index, value in enumerate(given):
            name = value.name.removeprefix("builtins.") if isinstance(value, Ref) and value.bound is None else ""
            if name in ("exec", "eval") or _SHELL.fullmatch(name) or _ARGV.fullmatch(name) or _DELETE.fullmatch(name):
                rest = given[index + 1 :] or given[:index]
                rest = rest[0] if len(rest) == 1 and isinstance(rest[0], list) else rest
                for each in [rest] if _ARGV.fullmatch(name) else [[item] for item in rest]:
                    self._library(name, each, {})
                return Ref(name)
        return None

    def _minor(self, name: str, args: list[Any], words: dict[str, Any]) -> Any:
        call, first = self.call, _text(args[0]) if args else ""
        if name in ("os.chmod", "os.lchmod"):
            mode = args[1] if len(args) > 1 else UNKNOWN
            call.run(["chmod", f"{mode:o}" if isinstance(mode, int) else ATOM, first])
        elif name in ("os.chown", "shutil.chown"):
            call.run(["chown", _text(args[1]) if len(args) > 1 else ATOM, first])
        elif name in ("os.kill", "os.killpg", "signal.pthread_kill"):
            if first in ("-1", "1") or STAR in first:
                call.emit("process.killall")
        elif name in ("os.setuid", "os.setgid", "os.seteuid", "os.setreuid", "os.setresuid"):
            call.emit("privilege.become")
        elif name in ("os.fork", "os.forkpty", "multiprocessing.Process") and self.looping:
            call.emit("process.forkbomb")
        elif name in ("os.unshare", "os.setns", "os.mount", "os.chroot"):
            call.emit("kernel.namespace")
        elif name in ("os.mknod",):
            call.emit("device.node")
        elif name == "pathlib.Path.write_text" or (
            name in ("fileinput.input", "fileinput.FileInput") and words.get("inplace")
        ):
            call.write(first)
        elif name == "os.truncate":
            self._overwrite(first, "", anew=True)
        elif name in ("os.chdir",):
            call.state.cwd = call.locate(first)[0]
        elif name in ("os.putenv", "os.environ.setdefault", "os.environ.__setitem__") and len(args) > 1:
            call.machine.set(first, _text(args[1]), call.state)
        elif name == "os.environ.update":
            self._set_environment(mapping(*args, words))
        return self._by_verb(name, first) or self._pure(name, first, args, words)

    def _by_verb(self, name: str, path: str) -> str:
        """A function of a library that nobody described, whose name says what it does with a path."""
        verb = name.rsplit(".", 1)[-1] if path[:1] in ("/", "~") else ""
        if re.match(r"to_|save|write_|export|dump", verb):
            self.call.write(path)
        return (
            self.call.read(path)
            if re.match(r"read(_|$)|load|scan_|imread|fromfile|genfromtxt|parse|netrc|getlines", verb)
            else ""
        )

    def _method(self, name: str, value: Any, args: list[Any], words: dict[str, Any]) -> Any:
        text, first = _text(value), _text(args[0]) if args else ""
        self._handed(args, words)
        if isinstance(value, Ref) and value.name.startswith("file:"):
            if name in ("write", "writelines"):
                self.call.machine.write_file(value.name[5:], first, self.call.state, append=True)
            if name == "add":  # to an archive
                self.call.read(first)
            return value
        if name in ("system", "popen", "spawn"):
            return self._run_text(first)
        if name == "kill" and first == "-1":
            self.call.emit("process.killall")
        if name in listed(
            "mount umount unshare setns ptrace reboot init_module pivot_root chroot syscall setuid"
        ) and not known(text):
            self.call.emit("kernel.namespace", f"ctypes {name}")
        if name in listed(
            "unlink rmtree write_text write_bytes touch read_text read_bytes open rename replace_path chmod symlink_to"
        ):
            return self._path_method(name, text, args, words)
        if name in ("send", "sendall", "sendto", "post", "put", "request", "publish", "sendmail", "storbinary"):
            text = "".join(_text(arg) for arg in [*args, *words.values()])
            self.call.send(SENSITIVE + text if name.startswith("send") and FILE in text else text, "remote")
            return NETWORK
        if name == "environ" and not args:
            self.call.machine.emit("read", "the environment of other processes", "secret", program="python")
        if name == "join" and args:
            items = [_text(item) for item in _many(args[0])]
            return repeated(text, len(items), lambda: text.join(items))
        if name == "replace" and len(args) > 1 and not isinstance(args[1], int):
            new, times = _text(args[1]), text.count(first) if known(first) and first else 0
            return repeated(new, times, lambda: text.replace(first, new)) if times else text
        if name == "format":
            return _format(text, args, words)
        if name in ("iterdir", "glob", "rglob"):
            return [f"{text.rstrip('/')}/{STAR}" if not first.strip("*/") else f"{text.rstrip('/')}/{ATOM}/{ATOM}"]
        if name == "split" and known(text):
            return text.split(first) if first else text.split()
        if name == "translate" or (name == "decode" and first in ("hex", "base64", "rot13", "rot_13")):
            return _codec(text, first) if name == "decode" else DISGUISED if known(text) else taints(text)
        if name in ("extractall", "extract"):
            target = _text(args[-1]) if args else _text(words.get("path", "."))
            if self.call.locate(target)[1] in ("root", "system", "home", "exec_hook", "kernel"):
                self.call.write(target, UNKNOWN, "extract")
            return UNKNOWN
        if name == "get" and isinstance(value, dict):
            return value.get(first, UNKNOWN)
        if name in ("update", "setdefault") and isinstance(value, dict):
            value |= mapping(*args, words) if name == "update" else {first: args[-1] if args else UNKNOWN}
            return None
        if name in ("append", "extend", "insert") and isinstance(value, list):
            value += _many(args[-1]) if name == "extend" and args else args[-1:]
            bounded(value)
            return None
        simple: dict[str, Callable[[str], Any]] = {
            "lower": str.lower,
            "upper": str.upper,
            "swapcase": str.swapcase,
            "title": str.title,
            "capitalize": str.capitalize,
        }
        if name in simple:
            return simple[name](text)
        if name in ("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"):
            return getattr(text, name)(*([first] if args else []))
        if name == "joinpath":
            return _join([text, *map(_text, args)])
        if (
            name in ("run", "sudo", "local")
            and text == UNKNOWN
            and first.split()[:1]
            and self.call.is_program(first.split()[0])
        ):
            return self._run_text(" ".join(map(_text, args)))  # nox, invoke, fabric
        if name in ("expanduser",):
            return text.replace("~", self.call.state.home(), 1)
        if name in ("read", "readlines", "readline") and isinstance(value, list):
            return (
                "\n".join(_text(item) for item in value)
                if name == "read"
                else value
                if name == "readlines"
                else _text(value[0])
                if value
                else ""
            )
        if name in ("communicate", "write", "sendline") and args and known(first):
            return self.call.run(self.spawned, Feed(first)) if self.spawned else UNKNOWN
        if name == "to_bytes":
            return DISGUISED
        self._by_verb(name, first)
        return (
            value
            if name
            in listed(
                "read decode encode readlines readline resolve absolute json items copy hex as_posix stdout "
                "output strip splitlines read1 values keys"
            )
            and not args
            else text
            if isinstance(value, str) and name in ("read", "decode", "encode", "with_suffix", "with_name", "tobytes")
            else NETWORK
            if NETWORK in text
            else UNKNOWN
        )

    def _path_method(self, name: str, text: str, args: list[Any], words: dict[str, Any]) -> Any:
        first = _text(args[0]) if args else ""
        if name in ("unlink", "rmtree"):
            self.call.delete(
                text.replace(STAR, ATOM) if self.picking else text, *(["recursive"] if name == "rmtree" else [])
            )
        elif name in ("write_text", "write_bytes", "touch"):
            self._overwrite(text, first or _text(words.get("data", "")), name != "touch")
        elif name in ("read_text", "read_bytes"):
            return self.call.read(text)
        elif name == "open":
            return self._open([text, *args], words)
        elif name == "rename":
            self.call.run(["mv", text, first])
        elif name == "symlink_to":
            self.call.run(["ln", "-s", first, text])
        elif name == "chmod":
            self.call.run(["chmod", f"{args[0]:o}" if args and isinstance(args[0], int) else ATOM, text])
        return UNKNOWN

    def _open(self, args: list[Any], words: dict[str, Any]) -> Any:
        path = _text(args[0]) if args else _text(words.get("file", ""))
        mode = _text(args[1]) if len(args) > 1 else _text(words.get("mode", "r"))
        if re.search(r"[wax+]", mode) or (len(args) > 1 and (not isinstance(args[1], str) or args[1] == UNKNOWN)):
            self._overwrite(path, "" if "w" in mode else FILE, "w" in mode)
            return Ref("file:" + path, FILE)
        return self.call.read(path)

    def _overwrite(self, path: str, text: str, anew: bool) -> None:
        """What is written over every file there is, and is not what was read from it, empties them all."""
        read = any(effect.kind == "read" and STAR in effect.target for effect in self.call.machine.effects)
        wipes = anew and STAR in path and not self.picking and not read
        self.call.write(path, text, *(["truncate"] if wipes else []))

    def _fetch(self, url: str, args: list[Any], words: dict[str, Any]) -> Any:
        from .files import is_loopback
        from .roles_net import host_of, metadata

        body = "".join(
            _text(value) for value in [*args[1:], *(words.get(key, "") for key in ("data", "json", "files", "params"))]
        )
        marks = taints(body + url)
        if has(marks, SECRET + SENSITIVE + ENCODED):
            self.call.send(marks, url)
        self.call.emit("net.fetch", url)
        metadata(self.call, url)
        if args[1:] and isinstance(args[1], str):
            self.call.write(args[1], NETWORK)
        return UNKNOWN if is_loopback(host_of(url)) else NETWORK

    def _dynamic(self, name: str, args: list[Any]) -> Any:
        text = _text(args[0]) if args else ""
        if name == "compile":
            return text
        if has(text, NETWORK):
            self.call.emit("exec.network", "python exec")
        elif name.endswith(".loads"):
            if name != "marshal.loads" and (known(text) or has(text, DISGUISED)):
                self.call.emit("exec.disguised", name)
            return DISGUISED
        elif known(text) and self.depth < 8:
            self.depth += 1
            if not self.run(text):
                self.call.emit("exec.disguised" if len(text) > 200 else "exec.unseen", text) if name == "exec" else None
            self.depth -= 1
        elif has(text, ENCODED + DISGUISED):
            self.call.emit("exec.disguised", "python exec")
        elif has(text, UNKNOWN) and name == "exec":
            self.call.emit("exec.unseen", "python exec")
        return UNKNOWN

    def _run_text(self, text: str) -> str:
        if NETWORK in text:
            self.call.emit("exec.network", text)
        elif text.strip(UNKNOWN) == "" and UNKNOWN in text:
            self.call.emit("exec.script", text)
            for suspect in [line.partition("=")[2] or line for held in self.held for line in held.splitlines()]:
                self.call.shell(suspect) if SUSPECT.match(suspect) else None
            return UNKNOWN
        return self.call.shell(text)

    def _set_environment(self, *given: Any) -> None:
        for key, value in [item for part in given if isinstance(part, dict) for item in part.items()]:
            self.call.machine.set(key, _text(value), self.call.state.fork())

    def _run_argv(self, name: str, args: list[Any], words: dict[str, Any]) -> Any:
        command = args[0] if args else words.get("args", "")
        self._set_environment(*args, words.get("env"))
        if re.search(r"os\.(exec|spawn|posix_spawn)|create_subprocess_exec", name):
            flat = [
                item
                for arg in args
                for item in (arg if isinstance(arg, list) else [arg])
                if not isinstance(item, int | dict | Ref)
            ]
            flat = (
                flat[1:]
                if re.match(r"os\.(exec|spawn|posix)", name)
                and len(flat) > 1
                and _text(flat[0]).rsplit("/", 1)[-1] == _text(flat[1]).rsplit("/", 1)[-1]
                else flat
            )
            return self.call.run([_text(item) for item in flat])
        if "stdin" in words:
            self.spawned = [_text(item) for item in command] if isinstance(command, list) else _text(command).split()
        feed = Feed(_text(words["input"])) if "input" in words else Feed(_text(words.get("stdin")))
        if isinstance(command, list):
            return self.call.run([_text(item) for item in command], feed)
        text = _text(command)
        return self._run_text(text) if words.get("shell") else self.call.run(text.split() or [""], feed)
