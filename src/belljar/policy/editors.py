"""Editors, databases and other programs with a door to a shell."""

import re
from itertools import pairwise

from .call import Call, program
from .compound import Feed
from .folding import _STRING, fold, unquote
from .interpreters import _script, scan
from .marks import DISGUISED, MAX_TEXT, NETWORK, unglob
from .parser import TooComplex
from .paths import HOME
from .quoting import listed


@program("vim vi nvim ex ed emacs view rvim vimdiff nano pico red gvim kak joe")
def _editor(call: Call) -> str | None:
    options = call.options(
        "cuSTtrl" + ("s" if call.name in ("nano", "pico") else ""),
        ("cmd", "eval", "execute", "load", "command", "script"),
    )
    texts = [unglob(text) for text in options.all("c", "cmd", "eval", "execute", "command")]
    texts += [unglob(arg)[1:] for arg in call.args if arg.startswith("+")] + call.stdin.splitlines()[:200]
    sourced = re.findall(r"(?m)(?:^|[|:\s])(?:so|source|luafile)!?\s+(\S+)", "\n".join(texts))
    sourced += [path for before, path in pairwise(call.args) if before == "-s"]
    for path in [*sourced, *options.all("S", "u", "l", "load", "script")]:
        call.load(path)
        texts += (call.machine.read_file(path, call.state) or "").splitlines()[:200]
    if options.get("s"):
        call.shell(options.get("s"))
    for path in options.all("l"):
        _script(call, "lua", [path])
    for text in texts if call.name == "emacs" else []:
        scan(call, "lisp", text)
    if NETWORK in call.stdin:
        call.emit("exec.network")
    texts = [_vimscript(text) for text in texts]
    texts = _filled("\n".join(texts), r"^\s*let\s+(?:\w:)?(\w+)\s*=\s*(['\"][^'\"]*['\"])").split("\n")
    texts = [fold(text) for text in texts]
    for path in re.findall(r"delete-(?:directory|file)\s+\"([^\"]+)\"|delete\(\s*['\"]([^'\"]+)['\"]", " ".join(texts)):
        call.delete(next(part for part in path if part), "recursive")
    for text in texts:
        for command in re.findall(
            r"(?:^|[|:\s]|silent\s)(?:\d*,?[\d$%.]*)!\s*(.+)|(?:r|read|w|write)\s*!\s*(.+)|(?:exe|execute)\s+['\"]!?([^'\"]+)['\"]|"
            r"(?:system(?:list)?|job_?start|term_start|termopen)\(\s*['\"](.+?)['\"]\s*[,)]|(?:^|[:\s])term(?:inal)?\s+(\S.*)|(?:shell-command|call-process)\s+\"([^\"]+)\"",
            text,
        ):
            call.shell(next(part for part in command if part))
        for path in re.findall(
            r"(?:^|[:|\s])(?:w|write|sav|saveas|up|update|redir|mkv\w*|mks\w*)!?\s*(?:(?<=\s)|>)>{0,2}\s*([^!>\s|]+)",
            text,
        ):
            call.write(path)
        for path in re.findall(
            rf"writefile\(\s*(?:[\[{{](?:{_STRING}|[^\]}}'\"]){{0,200}}[\]}}]|[^\[{{].{{0,200}}?)\s*,\s*({_STRING})|"
            rf"\b(?:rename|filecopy)\([^,]{{0,200}},\s*({_STRING})|"
            rf"\((?:write-region|append-to-file)\s+(?:[^\s\"]+|{_STRING})\s+\S+\s+({_STRING})|"
            rf"\((?:with-temp-file|find-file\w*)\s+({_STRING})|\((?:rename|copy)-file\s+{_STRING}\s+({_STRING})",
            text,
        ):
            call.write(unquote("".join(path), False))
        for body in re.findall(r"(?:py3?|python3?|pyx)\s+(.+)", text):
            scan(call, "python", body)
        for body in re.findall(r"lua\s+(.+)", text):
            scan(call, "lua", body)
    for path in [path for path in options.rest if not path.startswith("+")]:
        _full, kind, _flags = call.locate(path)
        if (
            texts
            and call.name in ("ed", "ex", "vim", "vi", "nvim")
            and any(re.search(r"(^|[|:\s])(wq?|x|wq!)\s*$", text) for text in texts)
        ):
            call.write(path)
        elif kind == "secret":
            call.read(path)
    return None


def _vimscript(text: str) -> str:
    """Vim's own way to say where the home is, as a literal, and literals joined."""
    text = re.sub(
        r"(?:vim\.fn\.)?expand\(\s*(['\"])(.{0,300}?)\1\s*\)", lambda m: f'"{re.sub("[$]HOME|^~", HOME, m[2])}"', text
    )
    return fold(re.sub(r"(?<=[.\s(,=])\$HOME\b(?=\s*[).,|]|\s*$)", f'"{HOME}"', text))


def _filled(text: str, definition: str) -> str:
    """The text with the values of what it defines in the place of their names."""
    for name, value in dict(re.findall(definition, text, re.M)[:20]).items():
        if text.count(name) * len(value) > MAX_TEXT:
            raise TooComplex("its definitions grow too long to judge")
        text = re.sub(rf"\b(?:\w:)?{name}\b(?!\s*=)", value.replace("\\", ""), text)
    return text


# Programs with a language of their own in which a text is run as a command.
_DOORS = {
    **dict.fromkeys(("m4", "gm4"), r"\be?syscmd\(([^()]*(?:\([^()]*\)[^()]*)*)\)"),
    **dict.fromkeys(
        listed("tex pdftex latex pdflatex xelatex lualatex latexmk luatex texlua"),
        r"\\write18\s*\{([^{}\\]{0,300})\}|\\input\s*\{?\s*\"?\|\s*\"?([^}\"]+)|os\.execute\(\s*['\"]([^'\"\n]{1,300})['\"]\s*\)|\bsystem\(\s*['\"]([^'\"\n]{1,300})['\"]\s*\)",
    ),
    **dict.fromkeys(("groff", "troff", "nroff"), r"(?m)^\.\s*(?:sy|pso|pi)\s+(.+)$"),
    **dict.fromkeys(
        ("gs", "ghostscript", "ps2pdf", "convert", "magick"), r"%pipe%([^()%]{1,300})\)|^\|(.+)|(?<=\s)\|(.+)$"
    ),
    **dict.fromkeys(
        ("maxima", "gp", "scilab", "puppet"),
        r"(?:system|extern|unix\w*|shell|exec)\s*[({]\s*['\"]([^'\"\n]{1,300})['\"]\s*[):]",
    ),
}


@program(" ".join(_DOORS))
def _door(call: Call) -> None:
    call.emit("exec.build")
    text = call.handed()
    if NETWORK in text:
        call.emit("exec.network")
    if call.name.endswith("m4"):
        text = re.sub(r"[`']", "", text)
        text = _filled(text, r"(?:\bdefine\(|^-D)(\w+)[,=]\s*([^()\n]*)")
        for path in re.findall(r"\b(?:s?include|undivert)\(([^()]+)\)", text):
            call.read(path)
    for command in re.findall(_DOORS[call.name], text)[:20]:
        call.shell(command if isinstance(command, str) else "".join(command))


@program("sqlite3 mysql mariadb psql mongo mongosh redis-cli duckdb clickhouse")
def _database(call: Call) -> str | None:
    text = call.handed()
    for path in re.findall(r"(?m)(?:\.read|\\i|\\\.|^source)\s+([^\s|]+)", text):
        text += "\n" + (call.machine.read_file(path, call.state) or "")
    for command in re.findall(
        r"(?m)\.(?:import|output|once|read)\s+['\"]?\|([^'\"\n]+)|^\s*\.(?:shell|system)\s+(.+)$|\\!\s*(.+)$|"
        r"(?i:\bPROGRAM)\s+'([^']+)'|(?m:^)\s*system\s+(.+)$|\.(?:once|output)\s+\|(.+)$|"
        r"\\[og]\s*\|\s*(.+)$|\bedit\([^()]*,\s*'([^']+)'",
        text,
    ):
        call.shell(next(part for part in command if part), feed=Feed(DISGUISED))
    for path in re.findall(
        r"(?i)into\s+(?:outfile|dumpfile)\s+'([^']+)'|writefile\('([^']+)'|\bto\s+'(/[^']+)'|\.(?:output|"
        r"once|backup|clone|save)\s+([^|\s]\S*)",
        text,
    ):
        call.write(next(part for part in path if part))
    for path in re.findall(r"(?i)load_extension\(\s*'([^']+)'|^\s*\.load\s+(\S+)|\bload\s+'([^']+)'", text, re.M):
        call.load("".join(path))
    for path in re.findall(r"(?i)(?:\w*(?:file|read|load|scan)\w*\(\s*|\b(?:from|infile)\s+)'([^']+)'", text):
        call.read(path)
    if call.name == "redis-cli" and re.search(r"(?i)config\s+set\s+dir|flushall.*cron|slaveof|module\s+load", text):
        call.emit("persist.cron")
    if call.name == "mongosh" and "child_process" in text:
        scan(call, "node", text)
    return None


@program(
    "man info journalctl xterm gnome-terminal konsole tcpdump rpmbuild dc systemd-analyze "
    "gimp ctags scrot xdotool kitty alacritty split-filter nsjail pdb cowsay zless whiptail"
)
def _escapes(call: Call) -> str | None:
    """Programs with a door to a shell somewhere in their options."""
    options = call.options("PpezaHmc", ("pager", "html", "filter", "command"))
    wanted = {
        "man": ("P", "pager", "H", "html"),
        "xterm": ("e",),
        "gnome-terminal": ("e", "command"),
        "konsole": ("e",),
        "tcpdump": ("z",),
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
    for command in re.findall(r"(?m)^!\s*(.+)$", call.handed()) if call.name in ("dc", "man", "pdb") else []:
        call.shell(command)
    return None


@program("java mono wasmtime wasmer wine dotnet-script")
def _runtime(call: Call) -> str | None:
    options = call.options("", ("jar", "cp", "classpath"))
    for path in (*options.all("jar"), *options.rest[:1]):
        text = call.machine.read_file(path, call.state)
        if text and path.endswith(".java"):
            scan(call, "other", text)
        call.load(path)
    if any(re.match(r"-(javaagent|agentpath|XX:On\w*Error)", arg) for arg in call.args):
        call.emit("exec.hidden")
    call.emit("exec.build")
    return None
