"""Interpreters: where their code comes from (-c, -e, a file of this command, standard input), and who reads it."""

import re

from .call import Call, Options, program
from .lexscan import LexScan, fold, unknown_output
from .machine import Feed
from .marks import ATOM, DISGUISED, FILE, NETWORK, UNKNOWN, has, has_glob, known, show, solid, taints, unglob
from .pyscan import PythonScan
from .quoting import ansi_c

# interpreter: (language, options that hold code, other options with a value)
_SIMPLE: dict[str, tuple[str, str, str]] = {
    **dict.fromkeys(("perl", "perl5"), ("perl", "eE", "ICx")),
    **dict.fromkeys(("ruby", "jruby", "irb"), ("ruby", "e", "ICEFKTxr")),
    **dict.fromkeys(("node", "nodejs", "bun", "deno", "qjs", "d8", "tsx", "ts-node"), ("node", "ep", "rCi")),
    **dict.fromkeys(("php", "php7", "php8"), ("php", "rBRE", "dcfFSt")),
    **dict.fromkeys(("lua", "luajit", "lua5.1", "lua5.3", "lua5.4", "texlua", "nmap"), ("lua", "e", "l")),
    **dict.fromkeys(("Rscript", "R"), ("r", "e", "")),
    **dict.fromkeys(("julia",), ("julia", "eE", "JpL")),
    **dict.fromkeys(("osascript",), ("osascript", "e", "l")),
    **dict.fromkeys(
        (
            "groovy",
            "scala",
            "elixir",
            "iex",
            "jshell",
            "guile",
            "sbcl",
            "clojure",
            "ghc",
            "ghci",
            "runghc",
            "swift",
            "raku",
            "kotlin",
            "crystal",
            "nim",
            "jrunscript",
            "zx",
            "racket",
            "gst",
        ),
        ("other", "ec", ""),
    ),
    **dict.fromkeys(("swipl", "gprolog"), ("other", "gt", "")),
    **dict.fromkeys(("ocaml", "utop"), ("other", "e", "")),
    **dict.fromkeys(("tclsh", "wish", "expectk", "octave", "gnuplot", "erl"), ("tcl", "e", "")),
}
_LONG_CODE = ("eval", "print", "run", "command")


def scan(call: Call, language: str, code: str, argv: list[str] | None = None) -> str:
    """Look through code for effects; gives what it prints."""
    if NETWORK in code:
        call.emit("exec.network", show(code[:200]))
    if language == "python":
        return _python_code(call, code, argv or [])
    if language == "c" and not re.search(r"system|exec|fork|setuid|unlink|socket", code):
        return UNKNOWN
    if language == "tcl":
        code = re.sub(r"\b(?:exec|os:cmd)\s+(?!['\"])([^\n;\]]+)", lambda m: f"system({m[1]!r})", code)
        code = re.sub(
            r"\bfile\s+delete\s+([^\n;\]]+)", lambda m: f"delete({', '.join(repr(w) for w in m[1].split())})", code
        )
        code = code.replace("[socket ", "socket( ")
    with call.machine.under(f"{call.name} ({language})"):
        scanner = LexScan(call, language, code, argv or [])
        scanner.run()
    return unknown_output(scanner.code, scanner.out)


def _python_code(call: Call, code: str, argv: list[str]) -> str:
    state = call.state
    call.state = state.fork()
    code = (
        re.sub(r"(?m)^[!%](?:sx\s+)?(.+)$", lambda m: f"__import__('os').system({m[1]!r})", code)
        if call.name == "ipython"
        else code
    )
    try:
        with call.machine.under(f"{call.name} (python)"):
            if (
                re.search(r"socket", code)
                and re.search(r"dup2|pty\.spawn|/bin/(ba|da|z)?sh|subprocess|os\.system|os\.popen", code)
                and re.search(r"connect\(|bind\(|listen\(|Server\(|create_connection", code)
            ):
                call.emit("net.shell")
            if re.search(r"S_IS[UG]ID", code) and "chmod" in code:
                call.emit("privilege.setuid")
            if re.search(r"(docker|containerd|podman|crio)\.sock", code):
                call.emit("kernel.engine")
            scanner = PythonScan(call, argv)
            if not scanner.run(code):
                lexical = LexScan(call, "python", code)
                lexical.run()
                return unknown_output(code, lexical.out)
    finally:
        call.state = state
    if scanner.out and not known(scanner.out) and not taints(scanner.out).strip(UNKNOWN):
        return DISGUISED
    return scanner.out or UNKNOWN


@program("python python2 python3 pypy pypy3 ipython pythonw micropython")
def _python(call: Call) -> str | None:
    options = call.options("cmWXQ", posix=True)
    args = [solid(arg) for arg in call.args]
    for name in ("sitecustomize.py", "usercustomize.py"):
        planted = call.machine.read_file(name, call.state)
        scan(call, "python", planted) if planted else None
    for index, arg in enumerate(args):
        if index and args[index - 1] in ("-W", "-X", "-Q"):
            continue
        if re.fullmatch(r"-[BEIOPSbdiqsuvx]*c.*", arg):
            code = arg.split("c", 1)[1] or (call.args[index + 1] if index + 1 < len(args) else "")
            return scan(call, "python", unglob(code), call.args[index + 2 :])
        if re.fullmatch(r"-[BEIOPSbdiqsuvx]*m.*", arg):
            module = arg.split("m", 1)[1] or (args[index + 1] if index + 1 < len(args) else "")
            return _module(call, module, call.args[index + 2 :])
        if arg in ("-W", "-X", "-Q"):
            continue
        if not arg.startswith("-"):
            break
    if options.rest and options.rest[0] != "-":
        return _script(call, "python", options.rest)
    return (
        scan(call, "python", call.stdin, options.rest[1:])
        if call.stdin and not call.stdin.strip(FILE + "\n") == ""
        else None
    )


def _module(call: Call, module: str, rest: list[str]) -> str | None:
    written = call.machine.read_file(module.replace(".", "/") + ".py", call.state)
    if written:
        scan(call, "python", written, rest)
    if module in ("zipfile", "tarfile") and {"-e", "--extract"} & set(rest):
        target = rest[-1]
        call.write(target) if call.locate(target)[1] in ("root", "system", "home", "exec_hook") and len(
            rest
        ) > 2 else None
    if module in ("pip", "pytest", "build", "mypy", "ruff", "black", "tox", "poetry", "uv", "base64"):
        return call.run([module, *rest])
    if module in ("timeit", "cProfile", "trace", "pdb", "doctest"):
        for code in [unglob(arg) for arg in rest if not arg.startswith("-")] if module == "timeit" else []:
            scan(call, "python", code)
        paths = [arg for arg in rest if not arg.startswith("-")]
        _script(call, "python", paths) if paths and module != "timeit" else None
    for path in rest:
        if (call.locate(path)[1] in ("secret", "root") and module == "http.server") or call.locate(path)[1] == "secret":
            call.read(path)
    if module in ("pty", "code") and rest:
        call.run(rest)
    if module in ("http.server", "SimpleHTTPServer"):
        call.emit("exec.build")
    return FILE if module == "json.tool" else None


def _script(call: Call, language: str, rest: list[str]) -> str | None:
    """A script file: looked through where this command wrote it, else the project's own code."""
    path = rest[0]
    text = call.stdin if path in ("-", "/dev/stdin", "/dev/fd/0") else call.machine.read_file(path, call.state)
    full, kind, _ = call.locate(path)
    if text is None:
        call.machine.emit("exec.script", full, kind, program=call.name)
        if call.fetched(full):
            call.emit("exec.network", full)
        return None
    if text and has(text, UNKNOWN) and not text.strip(UNKNOWN + "\n"):
        call.emit("exec.unseen", full)
    return scan(call, language, text, rest[1:]) if text.strip(FILE + "\n") else None


@program(" ".join(_SIMPLE))
def _interpreter(call: Call) -> str | None:
    language, coded, valued = _SIMPLE[call.name]
    options = call.options(coded + valued, _LONG_CODE, posix=True)
    if call.name in ("bun", "deno", "crystal") and options.rest:
        verb = solid(options.rest[0])
        if any(re.match(r"https?://", solid(arg)) for arg in call.args) and verb in ("run", "install", "eval", "x"):
            call.emit("exec.network")
        if verb == "eval":
            return scan(call, language, unglob(" ".join(options.rest[1:])))
        if verb in ("run", "test", "install", "add", "x", "build"):
            call.emit("exec.build")
            return None
    if call.name == "php" and options.get("t"):
        call.read(options.get("t")) if call.locate(options.get("t"))[1] in ("secret", "root", "home") else None
    codes = [unglob(code) for code in options.all(*coded, *_LONG_CODE)]
    codes += _late_codes(call, coded) + [solid(arg).partition(":")[2] for arg in call.args if arg.startswith("--eval:")]
    if call.name in ("node", "nodejs") and options.all("p", "print"):
        literal = re.fullmatch(r"\s*(['\"`])(.*)\1\s*", fold(codes[-1]), re.S)
        return scan(call, language, codes[-1]) if not literal else literal[2] + "\n"
    if call.name == "ruby" and options.get("r") == "un" and options.rest:
        return call.run(options.rest)
    if codes:
        _in_place(call, options)
        return scan(call, language, "\n".join(dict.fromkeys(codes)), options.rest)
    if call.name == "nmap":
        call.emit("exec.hidden") if (
            options.get("script") and "/" in options.get("script")
        ) or "--interactive" in call.args else None
        return None
    if options.rest and options.rest[0] != "-":
        return _script(call, language, options.rest)
    return scan(call, language, call.stdin) if call.stdin.strip(FILE + "\n") else None


def _late_codes(call: Call, coded: str) -> list[str]:
    """-ne, -pie, -lane: clusters in which the code comes with the last letter."""
    found = []
    for index, arg in enumerate(call.args[:-1]):
        if re.fullmatch(rf"-[a-zA-Z0-9.]*[{coded}]", arg):
            found.append(unglob(call.args[index + 1]))
    return found


def _in_place(call: Call, options: Options) -> None:
    edits = any(re.fullmatch(r"-\w*i(\.\w+)?\w*", arg) and call.name.startswith(("perl", "ruby")) for arg in call.args)
    for path in options.rest:
        if re.search(r"[/.~]|^\w+$", path) and not path.startswith("-") and not re.search(r"[;(){}$]", path):
            call.write(path, FILE) if edits else call.read(path) if call.locate(path)[1] == "secret" else None


@program("awk gawk mawk nawk original-awk")
def _awk(call: Call) -> str | None:
    options = call.options("vFfieE", ("assign", "field-separator", "file", "include", "source"), posix=True)
    if options.all("f", "file"):
        for path in options.all("f", "file"):
            _script(call, "awk", [path])
        return UNKNOWN
    if options.get("i", "include") == "inplace":
        for path in options.rest[1:]:
            call.write(path)
    code = unglob("\n".join(options.all("e", "source"))) or (unglob(options.rest[0]) if options.rest else "")
    for setting in options.all("v", "assign"):
        name, _, value = setting.partition("=")
        code = re.sub(
            rf"\b{re.escape(name)}\b(?!\s*=[^=])",
            lambda _, text=value: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"',
            code,
        )  # type: ignore[misc]
    text = (
        "".join(call.read(path) for path in options.rest[1:] if "=" not in path)
        if options.rest[1:] and not options.all("e")
        else call.stdin
    )
    code = re.sub(
        r"ARGV\[(\d+)\]", lambda m: _awk_quote(options.rest[int(m[1])]) if int(m[1]) < len(options.rest) else m[0], code
    )
    return _awk_code(call, code, text)


_AWK_STRING = r'"((?:[^"\\]|\\.)*)"'


def _awk_code(call: Call, code: str, text: str) -> str:
    """awk runs, writes and reads through strings; fields of known input are put in their place."""
    if NETWORK in text and re.search(r"system|\|\s*\"|getline", code):
        call.emit("exec.network", code)
    if re.search(r"(while\s*\(\s*1\s*\)|for\s*\(\s*;\s*;\s*\))[^}]*system\([^)]*&", code):
        call.emit("process.forkbomb")
    folded = [_awk_folded(code, line) for line in (text.splitlines()[:40] if known(text) and text else [""])]
    printing = [
        re.fullmatch(rf"\s*(?:BEGIN\s*)?\{{\s*printf?\s*\(?\s*{_AWK_STRING}\s*\)?\s*;?\s*\}}\s*", one) for one in folded
    ]
    lines = text.splitlines()[:12] if known(text) else [UNKNOWN] if not text.strip(FILE + ATOM + "\n") else [text]
    for line in lines or [""]:
        _awk_line(call, _awk_folded(code, line), line)
    if all(printing):
        return "".join(ansi_c(found[1]) + "\n" for found in printing if found)
    if known(text) and text:
        return _awk_field(code, text)
    return DISGUISED if "BEGIN" in code and re.search(r"printf?\b", code) and not text else text or ATOM


def _awk_folded(code: str, line: str) -> str:
    """Variables, fields and concatenation worked out as far as they are literal."""
    fields = line.split()
    code = re.sub(r"ENVIRON\[\"HOME\"\]", '"/home/sandbox"', code)
    code = (
        re.sub(
            r"\$(\d+)",
            lambda m: _awk_quote(
                line
                if m[1] == "0"
                else fields[int(m[1]) - 1]
                if 0 < int(m[1]) <= len(fields)
                else UNKNOWN
                if not known(line)
                else line.strip()
                if has_glob(line)
                else ""
            ),
            code,
        )
        if line
        else code
    )
    code = re.sub(rf"sprintf\(\s*{_AWK_STRING}\s*((?:,\s*[^),]+)*)\)", _awk_sprintf, code)
    for _ in range(4):
        code = re.sub(rf"{_AWK_STRING}\s*(?<=\")\s*{_AWK_STRING}", r'"\1\2"', code)
    for name, value in re.findall(rf"(\w+)\s*=\s*{_AWK_STRING}", code)[:20]:
        code = re.sub(rf"\b{name}\b(?!\s*=)", lambda _, text=value: f'"{text}"', code)  # type: ignore[misc]
    for _ in range(6):
        code = re.sub(rf"{_AWK_STRING}\s*(?<=\")\s*{_AWK_STRING}", r'"\1\2"', code)
    return code


def _awk_quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _awk_sprintf(found: re.Match[str]) -> str:
    from .builtins import _format

    args = [arg.strip().strip('"') for arg in found[2].split(",")[1:]]
    template = re.sub(r"%c", lambda _: chr(int(args.pop(0))) if args and args[0].isdigit() else "%s", found[1])
    return _awk_quote(_format(template, args))


def _awk_line(call: Call, code: str, line: str) -> None:
    for command in re.findall(rf"system\s*\(\s*{_AWK_STRING}", code) + re.findall(
        rf"{_AWK_STRING}\s*\|&?\s*getline", code
    ):
        call.shell(ansi_c(command))
    for given, command in re.findall(rf"(?:printf?\s*\(?\s*{_AWK_STRING}\)?)?[^|;}}\"]*\|&?\s*{_AWK_STRING}", code):
        call.shell(ansi_c(command), feed=Feed(ansi_c(given) or line))
    if re.search(r"/inet\d?/(tcp|udp)/", code):
        call.emit("net.socket", code)
    for path in re.findall(rf"printf?[^;}}]*>>?\s*{_AWK_STRING}", code):
        call.write(path)
    for path in re.findall(rf"getline[^;}}]*<\s*{_AWK_STRING}", code):
        call.read(path)


def _awk_field(code: str, text: str) -> str:
    """The output of `{print $N}` on known text; of anything more, text in disguise."""
    field = re.fullmatch(r"\s*\{\s*print\s*(?:\$(\d+|NF))?\s*;?\s*\}\s*", code)
    if not field:
        return text if has_glob(text) or "print" not in code else DISGUISED
    which, lines = field[1] or "0", [line.split() for line in text.splitlines()]
    return "".join(
        (
            line[-1]
            if which == "NF"
            else " ".join(line)
            if which == "0"
            else line[int(which) - 1]
            if int(which) <= len(line)
            else line[-1]
            if has_glob(text)
            else ""
        )
        + "\n"
        for line in lines
        if line
    )


@program("vim vi nvim ex ed emacs view rvim vimdiff nano pico red gvim kak joe")
def _editor(call: Call) -> str | None:
    options = call.options(
        "cuSTtrl" + ("s" if call.name in ("nano", "pico") else ""), ("cmd", "eval", "execute", "load", "command")
    )
    texts = [unglob(text) for text in options.all("c", "cmd", "eval", "execute", "command")]
    texts += [unglob(arg)[1:] for arg in call.args if arg.startswith("+")] + call.stdin.splitlines()[:200]
    if options.get("s"):
        call.shell(options.get("s"))
    for path in options.all("l"):
        _script(call, "lua", [path])
    for text in texts:
        if re.search(r"call-process|start-process|shell-command|make-process", text):
            words = re.findall(r'"([^"]+)"', text)
            call.run(words) if len(words) > 1 else None
    if NETWORK in call.stdin:
        call.emit("exec.network")
    for path in re.findall(r"delete-(?:directory|file)\s+\"([^\"]+)\"|delete\(\s*['\"]([^'\"]+)['\"]", " ".join(texts)):
        call.delete(next(part for part in path if part), "recursive")
    for text in texts:
        for command in re.findall(
            r"(?:^|[|:\s]|silent\s)(?:\d*,?[\d$%.]*)!\s*(.+)|(?:r|read|w|write)\s*!\s*(.+)|(?:exe|execute)\s+['\"]!?([^'\"]+)['\"]|"
            r"system\(\s*['\"](.+?)['\"]\s*\)|(?:shell-command|call-process)\s+\"([^\"]+)\"",
            text,
        ):
            call.shell(next(part for part in command if part))
        for path in re.findall(r"(?:^|[:|\s])(?:w|write|sav|saveas)!?\s+([^!\s|]+)", text):
            call.write(path)
        for body in re.findall(r"(?:py3?|python3?|pyx)\s+(.+)", text):
            scan(call, "python", body)
        for body in re.findall(r"lua\s+(.+)", text):
            scan(call, "lua", body)
    for path in [path for path in options.rest if not path.startswith("+")]:
        full, kind, flags = call.locate(path)
        if (
            texts
            and call.name in ("ed", "ex", "vim", "vi", "nvim")
            and any(re.search(r"(^|[|:\s])(wq?|x|wq!)\s*$", text) for text in texts)
        ):
            call.write(path)
        elif kind == "secret":
            call.read(path)
    return None


@program("sqlite3 mysql mariadb psql mongo mongosh redis-cli duckdb clickhouse")
def _database(call: Call) -> str | None:
    text = unglob("\n".join(call.args)) + "\n" + call.stdin
    for command in re.findall(
        r"(?m)\.(?:import|output|once|read)\s+['\"]?\|([^'\"\n]+)|^\s*\.(?:shell|system)\s+(.+)$|\\!\s*(.+)$|"
        r"(?i:\bPROGRAM)\s+'([^']+)'|(?m:^)\s*system\s+(.+)$|\.(?:once|output)\s+\|(.+)$",
        text,
    ):
        call.shell(next(part for part in command if part))
    for path in re.findall(
        r"(?i)into\s+(?:outfile|dumpfile)\s+'([^']+)'|writefile\('([^']+)'|\bto\s+'(/[^']+)'|\.(?:output|"
        r"once|backup|clone|save)\s+([^|\s]\S*)",
        text,
    ):
        call.write(next(part for part in path if part))
    for path in re.findall(
        r"(?i)load_file\('([^']+)'\)|readfile\('([^']+)'\)|copy\s+\w+\s+from\s+'([^']+)'|pg_read_file\('([^']+)'\)",
        text,
    ):
        call.read(next(part for part in path if part))
    if call.name == "redis-cli" and re.search(r"(?i)config\s+set\s+dir|flushall.*cron|slaveof|module\s+load", text):
        call.emit("persist.cron")
    return None


@program(
    "man info journalctl xterm gnome-terminal konsole tcpdump rpmbuild ansible vagrant dc systemd-analyze "
    "gimp ctags scrot xdotool kitty alacritty split-filter nsjail pdb cowsay zless whiptail"
)
def _escapes(call: Call) -> str | None:
    """Programs with a door to a shell somewhere in their options."""
    options = call.options("PpezaHmc", ("pager", "html", "filter", "command", "args"))
    wanted = {
        "man": ("P", "pager", "H", "html"),
        "xterm": ("e",),
        "gnome-terminal": ("e", "command"),
        "konsole": ("e",),
        "tcpdump": ("z",),
        "ansible": ("a", "args"),
        "vagrant": ("c", "command"),
        "dc": ("e",),
        "kitty": ("e",),
        "alacritty": ("e",),
    }.get(call.name, ())
    for text in options.all(*wanted):
        text = unglob(text)
        if call.name == "dc":
            text = text.partition("!")[2]
        elif (
            call.name in ("man", "tcpdump")
            and text.split()[:1]
            and text.split()[0] not in ("cat", "less", "more", "most", "col")
        ):
            call.emit("exec.hidden", text)
        call.shell(text)
    if call.name in ("xterm", "gnome-terminal", "kitty", "alacritty") and options.rest:
        call.run(options.rest)
    for command in re.findall(r"(?m)^!\s*(.+)$", call.stdin) if call.name in ("dc", "man", "pdb") else []:
        call.shell(command)
    return None


@program("java mono wasmtime wasmer wine dotnet-script")
def _runtime(call: Call) -> str | None:
    options = call.options("", ("jar", "cp", "classpath"))
    for path in (*options.all("jar"), *options.rest[:1]):
        text = call.machine.read_file(path, call.state)
        if (text is not None and NETWORK in text) or call.fetched(call.locate(path)[0]):
            call.emit("exec.network", path)
    if any(re.match(r"-(javaagent|agentpath|XX:On\w*Error)", arg) for arg in call.args):
        call.emit("exec.hidden")
    call.emit("exec.build")
    return None
