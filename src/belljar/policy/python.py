"""python: where its code comes from (-c, -m, a file of this command, standard input)."""

import re

from .call import Call, program
from .marks import DISGUISED, FILE, UNKNOWN, known, solid, taints, unglob
from .pyscan import PythonScan
from .shells import feed_shell

# Running something that is not written out in the code.
_OBEYS = re.compile(
    r"(?:subprocess\.\w+|Popen|os\.system|os\.popen|check_output|getoutput)\(\s*(?!\[?\s*(?:f?['\"]|sys\.))"
)
_AS_PROGRAM = frozenset(["pip", "pytest", "build", "mypy", "ruff", "black", "tox", "poetry", "uv", "base64", "twine"])


def shapes(call: Call, code: str) -> None:
    """What only the whole of the code gives away."""
    connects = re.search(r"connect\(|bind\(|listen\(|Server\(|create_connection", code) and "socket" in code
    if connects and (re.search(r"dup2|pty\.spawn|/bin/(ba|da|z)?sh", code) or _OBEYS.search(code)):
        call.emit("net.shell")
    if re.search(
        r"while\s+(True|1)\s*:(?!.{0,200}\b(sleep|wait|communicate|input)\b).{0,80}(Popen|fork|Process)\(", code, re.S
    ):
        call.emit("process.forkbomb")
    if re.search(r"chmod[^\n]{0,200}S_IS[UG]ID|S_IS[UG]ID[^\n]{0,200}chmod", code):
        call.emit("privilege.setuid")
    engine = re.search(r"(docker|containerd|podman|crio)\.sock", code) and re.search(r"(?i)unix|connect", code)
    if engine or ("docker" in code and re.search(r"privileged\s*=\s*True|volumes\s*=\s*\{\s*['\"]/['\"]", code)):
        call.emit("kernel.engine")
    if "CronTab(" in code:
        call.emit("persist.cron")


def scan_python(call: Call, code: str, argv: list[str], hooks: bool = False) -> str | None:
    """What it prints; None where it could not be read."""
    state = call.state
    call.state = state.fork()
    if call.name == "ipython":
        code = re.sub(r"(?m)^[!%](?:sx\s+)?(.+)$", lambda m: f"__import__('os').system({m[1]!r})", code)
    try:
        with call.machine.under(f"{call.name} (python)"):
            shapes(call, code)
            scanner = PythonScan(call, argv)
            if not scanner.run(code):
                return None
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
        call.scan("python", planted, []) if planted else None
    for index, arg in enumerate(args):
        found = re.fullmatch(r"-[BEIOPSbdiqsuvx]*([cm])(.*)", arg, re.S)
        if found:
            text = found[2] or (call.args[index + 1] if index + 1 < len(args) else "")
            rest = call.args[index + (1 if found[2] else 2) :]
            return call.scan("python", unglob(text), rest) if found[1] == "c" else _module(call, solid(text), rest)
        if not arg.startswith("-") and args[index - 1] not in ("-W", "-X", "-Q"):
            break
    if options.rest and options.rest[0] != "-":
        return call.run_code("python", options.rest)
    return call.scan("python", call.stdin, options.rest[1:]) if call.stdin.strip(FILE + "\n") else None


def _module(call: Call, module: str, rest: list[str]) -> str | None:
    for path in (".py", "/__main__.py"):
        written = call.machine.read_file(module.replace(".", "/") + path, call.state)
        call.scan("python", written, rest) if written else None
    words = [arg for arg in rest if not arg.startswith("-")]
    if module in ("zipfile", "tarfile") and {"-e", "--extract"} & set(rest) and len(rest) > 2:
        call.unpack(rest[-1])
    if module in _AS_PROGRAM or module in ("unittest", "nose2", "coverage"):
        return call.run([module if module in _AS_PROGRAM else "pytest", *rest])
    if module == "timeit":
        for code in words:
            call.scan("python", unglob(code), [])
    elif module in ("cProfile", "trace", "doctest", "pdb") and words:
        call.run_code("python", words)
        commands = [rest[i + 1] for i, arg in enumerate(rest[:-1]) if arg in ("-c", "--command")] + [call.stdin]
        for code in commands if module == "pdb" else []:
            call.scan("python", re.sub(r"(?m)^\s*!", "", unglob(code)), [])
    for path in rest:
        call.serve(path) if module == "http.server" else call.read(path) if call.locate(path)[1] == "secret" else None
    if module == "pty":
        return call.run(rest) if rest else feed_shell(call, [])
    if module in ("http.server", "SimpleHTTPServer"):
        call.emit("exec.build")
    return FILE if module == "json.tool" else None
