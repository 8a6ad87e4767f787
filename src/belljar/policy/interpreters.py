"""Interpreters: where their code comes from (-c, -e, a file of this command, standard input), and who reads it."""

import json
import re

from .call import Call, Options, program
from .folding import fold
from .lexscan import LexScan, unknown_output
from .marks import DISGUISED, FILE, NETWORK, UNKNOWN, has, known, show, solid, taints, unglob
from .pyscan import PythonScan
from .quoting import listed
from .shapes import SETUID, respawns
from .wrappers import feed_shell

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
        listed(
            "groovy scala elixir iex jshell guile sbcl clojure ghc ghci runghc swift raku kotlin crystal nim "
            "jrunscript zx racket gst"
        ),
        ("other", "ec", ""),
    ),
    **dict.fromkeys(("swipl", "gprolog"), ("other", "gt", "")),
    **dict.fromkeys(("ocaml", "utop"), ("other", "e", "")),
    **dict.fromkeys(("tclsh", "wish", "expectk", "octave", "gnuplot", "erl"), ("tcl", "e", "")),
}
# Only the syntax is looked at (perl's -c runs BEGIN blocks).
_CHECKED = {"ruby": r"^-w?c\b", "php": r"^-l\b", "node": r"^(--check|-c)\b"}
# Running something that is not written out in the code.
_OBEYS = re.compile(
    r"(?:subprocess\.\w+|Popen|os\.system|os\.popen|check_output|getoutput)\(\s*(?!\[?\s*(?:f?['\"]|sys\.))"
)
_REACHES = (
    r"system|exec|fork|set\w*uid|unlink|remove|rmdir|socket|kill|reboot|mount|open|rename|chmod|chown|truncate|syscall|ptrace|"
    r"unshare|setns|chroot|symlink|nftw|dlopen"
)
_LONG_CODE = ("eval", "print", "run", "command")
_LONG_FILES = ("require", "import", "loader")


def scan(call: Call, language: str, code: str, argv: list[str] | None = None) -> str:
    """Look through code for effects; gives what it prints."""
    if NETWORK in code:
        call.emit("exec.network", show(code[:200]))
    if language in ("python", "python hooks"):
        return _python_code(call, code, argv or [], hooks=language != "python")
    if language == "c" and not re.search(_REACHES, code):
        return UNKNOWN
    if language == "tcl":
        for name, value in re.findall(r"\bset\s+(\w+)\s+[\"{]?([^\s\";$\]{}]+)", code)[:20]:
            code = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value.replace("\\", ""), code)
        code = re.sub(r"\b(?:exec|os:cmd)\s+(?!['\"])([^\n;\]]+)", lambda m: f"system({m[1]!r})", code)
        code = re.sub(
            r"\bfile\s+delete\s+([^\n;\]]+)", lambda m: f"unlink({', '.join(repr(w) for w in m[1].split())})", code
        )
        code = code.replace("[socket ", "socket( ")
    with call.machine.under(f"{call.name} ({language})"):
        scanner = LexScan(call, language, code, argv or [])
        scanner.run()
    return unknown_output(scanner.code, scanner.out)


def _python_code(call: Call, code: str, argv: list[str], hooks: bool = False) -> str:
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
                and (re.search(r"dup2|pty\.spawn|/bin/(ba|da|z)?sh", code) or _OBEYS.search(code))
                and re.search(r"connect\(|bind\(|listen\(|Server\(|create_connection", code)
            ):
                call.emit("net.shell")
            if respawns(code):
                call.emit("process.forkbomb")
            if SETUID.search(code):
                call.emit("privilege.setuid")
            if re.search(r"privileged\s*=\s*True|volumes\s*=\s*\{\s*['\"]/['\"]", code) and "docker" in code:
                call.emit("kernel.engine")
            if re.search(r"\bCronTab\(", code):
                call.emit("persist.cron")
            if re.search(r"(docker|containerd|podman|crio)\.sock", code) and re.search(r"(?i)unix|connect", code):
                call.emit("kernel.engine")
            scanner = PythonScan(call, argv)
            if not scanner.run(code):
                lexical = LexScan(call, "python", code)
                lexical.run()
                return unknown_output(code, lexical.out)
            if hooks:
                scanner.run_hooks()
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
        if call.stdin and call.stdin.strip(FILE + "\n") != ""
        else None
    )


def _module(call: Call, module: str, rest: list[str]) -> str | None:
    for path in (".py", "/__main__.py"):
        written = call.machine.read_file(module.replace(".", "/") + path, call.state)
        scan(call, "python", written, rest) if written else None
    if module in ("zipfile", "tarfile") and {"-e", "--extract"} & set(rest):
        target = rest[-1]
        call.write(target) if call.locate(target)[1] in ("root", "system", "home", "exec_hook") and len(
            rest
        ) > 2 else None
    if module in ("unittest", "nose2", "coverage"):
        return call.run(["pytest", *rest])
    if module in ("pip", "pytest", "build", "mypy", "ruff", "black", "tox", "poetry", "uv", "base64"):
        return call.run([module, *rest])
    if module in ("timeit", "cProfile", "trace", "pdb", "doctest"):
        for code in [unglob(arg) for arg in rest if not arg.startswith("-")] if module == "timeit" else []:
            scan(call, "python", code)
        commands = [rest[i + 1] for i, arg in enumerate(rest[:-1]) if arg in ("-c", "--command")] + [call.stdin]
        for code in commands if module == "pdb" else []:
            scan(call, "python", re.sub(r"(?m)^\s*!", "", unglob(code)))
        paths = [arg for arg in rest if not arg.startswith("-") and arg not in commands]
        _script(call, "python", paths) if paths and module != "timeit" else None
    for path in rest:
        if module == "http.server":
            call.serve(path)
        elif call.locate(path)[1] == "secret":
            call.read(path)
    if module == "pty" and not rest:
        return feed_shell(call, [])
    if module in ("pty", "code") and rest:
        call.run(rest)
    if module in ("http.server", "SimpleHTTPServer"):
        call.emit("exec.build")
    return FILE if module == "json.tool" else None


def _script(call: Call, language: str, rest: list[str]) -> str | None:
    """A script file: looked through where this command wrote it, else the project's own code."""
    path = rest[0]
    text = call.script(path)
    if text is None:
        call.run_unseen(path)
        return None
    if text and has(text, UNKNOWN) and not text.strip(UNKNOWN + "\n"):
        call.emit("exec.unseen", call.locate(path)[0])
    return scan(call, language, text, rest[1:]) if text.strip(FILE + "\n") else None


@program("jupyter jupyter-nbconvert jupyter-execute papermill runipy")
def _notebook(call: Call) -> None:
    """A notebook that this command wrote, where its cells are run."""
    call.emit("exec.build")
    if call.name.startswith("jupyter") and not re.search(r"execute|run", " ".join(call.args)):
        return
    for text in filter(None, [call.script(path) for path in call.args]):
        try:
            cells = json.loads(text)["cells"]
            codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        except (ValueError, RecursionError, LookupError, TypeError):
            continue
        for code in codes:
            scan(Call(call.machine, "ipython", [], call.state, call.feed), "python", code)


@program(" ".join(_SIMPLE))
def _interpreter(call: Call) -> str | None:
    language, coded, valued = _SIMPLE.get(call.name) or _SIMPLE[re.sub(r"[-\d.]+$", "", call.name)]  # node18
    options = call.options(coded + valued, _LONG_CODE + _LONG_FILES, posix=True)
    if call.name in ("bun", "deno", "crystal") and options.rest:
        verb = solid(options.rest[0])
        if any(re.match(r"https?://", solid(arg)) for arg in call.args) and verb in ("run", "install", "eval", "x"):
            call.emit("exec.network")
        if verb == "eval":
            return scan(call, language, unglob(" ".join(options.rest[1:])))
        if NETWORK in call.stdin and "-" in options.rest + call.args:
            call.emit("exec.network")
        if verb == "run" and options.rest[1:2] == ["-"]:
            return scan(call, language, call.stdin)
        if verb in ("run", "test", "install", "add", "x", "build"):
            call.emit("exec.build")
            return None
    for path in options.all("r", "require", "import", "loader") if language in ("node", "ruby") else []:
        text = call.machine.read_file(path, call.state) or call.machine.read_file(f"{path}.rb", call.state)
        scan(call, language, text) if text else None
    if language == "node" and options.has("check"):
        return ""
    if any(re.match(r"auto_(pre|ap)pend_file=.", setting) for setting in options.all("d")):
        call.emit("exec.hidden")
    if call.name in _CHECKED and re.search(_CHECKED[call.name], " ".join(call.args)):
        return None
    if call.name == "php" and options.get("t"):
        call.serve(options.get("t"))
    codes = [unglob(code) for code in options.all(*coded, *_LONG_CODE)]
    codes += _late_codes(call, coded) + [solid(arg).partition(":")[2] for arg in call.args if arg.startswith("--eval:")]
    if call.name in ("node", "nodejs") and options.all("p", "print"):
        literal = re.fullmatch(r"\s*(['\"`])(.*)\1\s*", fold(codes[-1]), re.S)
        return scan(call, language, codes[-1]) if not literal else literal[2] + "\n"
    if call.name == "ruby" and options.get("r") == "un" and options.rest:
        return call.run(options.rest)
    if codes:
        _in_place(call, options)
        out = scan(call, language, "\n".join(dict.fromkeys(codes)), options.rest)
        return DISGUISED if out == UNKNOWN and call.stdin.strip() and known(call.stdin) else out
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
