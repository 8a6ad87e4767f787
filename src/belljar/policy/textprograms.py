"""Programs that print and transform text. Known text is really transformed; what is not known keeps its taint."""

import base64
import binascii
import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Callable

from .call import Call, program
from .marks import (
    ATOM,
    DISGUISED,
    ENCODED,
    FILE,
    SECRET,
    SELF,
    STAR,
    UNKNOWN,
    clip,
    has_glob,
    known,
    solid,
    taints,
    unglob,
)
from .quoting import ansi_c


def _inputs(call: Call, paths: list[str]) -> str:
    return clip("".join(call.read(path) for path in paths)) if paths else call.stdin


def _decoded(text: str, decode: Callable[[bytes], bytes]) -> str:
    """A decoder on known text gives its text; on text that is not known, something that nobody can see."""
    if not known(text):
        marks = taints(text)
        return marks.replace(FILE, UNKNOWN).replace(ATOM, UNKNOWN)
    try:
        return as_text(decode(as_bytes(text)))
    except (ValueError, binascii.Error, zlib.error, EOFError, OSError, lzma.LZMAError):
        return DISGUISED if text.strip() else ""


def as_bytes(text: str) -> bytes:
    """Text that stands for bytes which are not UTF-8 is Latin-1."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def as_text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _encoded(text: str, encode: Callable[[bytes], bytes]) -> str:
    if known(text):
        return encode(text.encode("utf-8", "replace")).decode("ascii", "replace")
    return ENCODED + taints(text).replace(FILE, "").replace(ATOM, "").replace(UNKNOWN, "")


@program(
    "cat tac bat batcat gcat less more view most pg nl head tail strings fold fmt expand unexpand column pr ghead gtail"
)
def _cat(call: Call) -> str:
    options = call.options(
        "ncw" if call.name in ("head", "tail", "fold") else "", ("lines", "bytes", "language", "style")
    )
    rest = [path for path in options.rest if not (call.name in ("head", "tail") and re.fullmatch(r"\+?\d+", path))]
    for command in [arg[2:] for arg in call.args if arg.startswith("+!")]:
        call.shell(command)
    text = _inputs(call, [path for path in rest if not path.startswith("+")])
    if call.name in ("nl", "pr", "column", "fmt", "fold") and text and known(text):
        return DISGUISED
    if call.name in ("head", "tail") and not re.search(r"(^|\s)(-n\s*)?\+\d", " ".join(call.args)):
        text = text.replace(STAR, ATOM)
    if call.name == "tac" and known(text):
        return "".join(reversed(text.splitlines(True)))
    count = options.get("n", "lines") or next((flag for flag in sorted(options.flags) if flag.isdigit()), "")
    if call.name in ("head", "tail") and known(text) and re.fullmatch(r"\+?\d+", count):
        lines, number = text.splitlines(True), int(count)
        return "".join(
            lines[:number]
            if call.name == "head"
            else lines[number - 1 :]
            if count[0] == "+"
            else lines[-number or len(lines) :]
        )
    size = options.get("c", "bytes")
    if call.name in ("head", "tail") and known(text) and re.fullmatch(r"\+?\d+", size):
        return (
            text[: int(size)]
            if call.name == "head"
            else text[int(size) - 1 :]
            if size[0] == "+"
            else text[-int(size) :]
        )
    if call.name in ("head", "tail") and SELF in text:
        return UNKNOWN
    return UNKNOWN if call.name == "strings" and FILE in text else text


@program("rev")
def _rev(call: Call) -> str:
    text = _inputs(call, call.options().rest)
    return "".join(line.rstrip("\n")[::-1] + "\n" for line in text.splitlines(True)) if known(text) else taints(text)


@program("sort uniq shuf comm join paste gsort")
def _lines(call: Call) -> str:
    options = call.options(
        {"sort": "koStT", "uniq": "fsw", "shuf": "nioe", "paste": "d", "join": "12taeoj"}.get(call.name, ""),
        ("output", "key", "field-separator", "compress-program", "delimiters"),
    )
    if options.get("compress-program"):
        call.emit("exec.hidden", options.get("compress-program")) if options.get("compress-program") not in (
            "gzip",
            "zstd",
            "xz",
            "bzip2",
            "lz4",
            "pigz",
        ) else None
        call.shell(options.get("compress-program"))
    text = _inputs(call, options.rest)
    if options.get("o", "output"):
        call.write(options.get("o", "output"), text)
    if known(text) and call.name == "sort":
        lines = sorted(
            set(text.splitlines()) if options.has("u", "unique") else text.splitlines(),
            reverse=options.has("r", "reverse"),
        )
        return "".join(line + "\n" for line in lines)
    if known(text) and call.name == "paste" and options.has("s", "serial"):
        return (
            (ansi_c(options.get("d", "delimiters")) or "\t").join(text.splitlines()) + "\n"
            if len(options.get("d", "delimiters")) < 2
            else DISGUISED
        )
    return text


@program(
    "base64 base32 basenc uudecode uuencode gbase64 xxd hexdump od openssl gpg gunzip zcat bunzip2 "
    "unxz unzstd zstdcat xzcat bzcat iconv recode ascii2uni qprint age ccrypt mcrypt"
)
def _codec(call: Call) -> str | None:
    options = call.options(
        {"od": "AjNSwt", "hexdump": "efns", "xxd": "csgl", "iconv": "fto"}.get(
            call.name, "w" if call.name.startswith("b") else ""
        ),
        ("wrap", "in", "out", "pass", "output", "decrypt-out", "k"),
    )
    rest = list(options.rest)
    if call.name == "openssl":
        return _openssl(call)
    if call.name == "gpg":
        return _gpg(call, rest)
    text = _inputs(call, rest[:1] if call.name in ("xxd", "uuencode") else rest)
    if call.name in ("base64", "gbase64", "base32", "basenc"):
        decoding = options.has("d", "D", "decode", "di", "i") or any(
            "d" in flag for flag in options.flags if len(flag) == 1
        )
        codec = (
            (base64.b32decode, base64.b32encode)
            if call.name == "base32" or options.has("base32")
            else (_loose_base64, base64.b64encode)
        )
        return (
            _decoded("".join(text.split()) if known(text) else text, codec[0]) if decoding else _encoded(text, codec[1])
        )
    if call.name == "xxd":
        flags = "".join(sorted(options.flags))
        return (
            _decoded(text, lambda raw: _unhex(raw, "p" in flags)) if "r" in flags else _encoded(text, binascii.hexlify)
        )
    if call.name in ("od", "hexdump", "uuencode"):
        return _encoded(text, binascii.hexlify) if not known(text) else DISGUISED if text else ""
    inflate = {
        "gunzip": _inflate,
        "zcat": _inflate,
        "bunzip2": bz2.decompress,
        "bzcat": bz2.decompress,
        "unxz": lzma.decompress,
        "xzcat": lzma.decompress,
    }.get(call.name)
    if call.name in ("iconv", "recode") and known(text):
        return text
    return _decoded(text, inflate) if inflate else (taints(text).replace(FILE, UNKNOWN) or DISGUISED)


def _loose_base64(raw: bytes) -> bytes:
    raw = re.sub(rb"[^A-Za-z0-9+/=]", b"", raw.translate(bytes.maketrans(b"-_", b"+/"))).rstrip(b"=")
    return base64.b64decode(raw + b"=" * (-len(raw) % 4))


def _unhex(raw: bytes, plain: bool) -> bytes:
    if not plain:
        raw = b"".join(re.sub(rb"^[0-9a-fA-F]+:\s*", b"", line).split(b"  ")[0] for line in raw.splitlines())
    raw = re.sub(rb"[^0-9a-fA-F]", b"", raw.replace(b"0x", b""))
    return binascii.unhexlify(raw[: len(raw) // 2 * 2])


def _inflate(raw: bytes) -> bytes:
    return zlib.decompressobj(47).decompress(raw, 1 << 20)


def _openssl(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args]
    paths = {
        flag: words[i + 1]
        for i, flag in enumerate(words[:-1])
        if flag in ("-in", "-out", "-connect", "-engine", "-key", "-inkey")
    }
    if words[:1] == ["s_client"]:
        call.emit(
            "net.socket",
            paths.get("-connect", ""),
            *(["local"] if re.match(r"localhost|127\.", paths.get("-connect", "")) else []),
        )
        from .network import sends

        sends(call, call.stdin, paths.get("-connect", ""))
        return NETWORK_MARK
    if "-engine" in paths and "/" in paths["-engine"]:
        call.emit("exec.hidden")
    text = call.read(paths["-in"]) if "-in" in paths else call.stdin
    decoding = ("-d" in words and words[0] in ("enc", "base64")) or (words[0] == "base64" and "-d" in words)
    if "-out" in paths:
        call.write(paths["-out"], taints(text) or FILE)
        return ""
    if (
        decoding
        and ({"-a", "-base64", "-A"} & set(words) or words[0] == "base64")
        and not any(re.match(r"-(aes|des|bf|rc|cam|chacha)", word) for word in words)
    ):
        return _decoded("".join(text.split()) if known(text) else text, _loose_base64)
    if decoding:
        return taints(text).replace(FILE, UNKNOWN) or DISGUISED
    return (
        _encoded(text, base64.b64encode)
        if words[0] in ("enc", "base64")
        else ATOM + taints(text).replace(FILE, "").replace(SECRET, "")
    )


NETWORK_MARK = "\ufdd1"


def _gpg(call: Call, rest: list[str]) -> str | None:
    target = next((call.args[i + 1] for i, arg in enumerate(call.args[:-1]) if arg in ("-o", "--output")), "")
    if target:
        call.write(target)
    if re.search(r"--export-secret|--export-options.*secret", " ".join(call.args)):
        call.machine.emit("read", "~/.gnupg", "secret", program="gpg")
        return SECRET
    text = "".join(call.read(path) for path in rest) if rest else call.stdin
    return taints(text).replace(FILE, UNKNOWN) or DISGUISED


@program("tr gtr")
def _tr(call: Call) -> str:
    options = call.options()
    text, sets = call.stdin, [unglob(word) for word in options.rest]
    if not known(text):
        return taints(text) if not text.strip(ATOM + FILE + " \n") == "" else text
    if not sets or not all(known(word) for word in sets):
        return DISGUISED
    first, second = (_tr_set(word) for word in (sets + [""])[:2])
    if options.has("c", "C", "complement"):
        keep = "".join(char for char in text if char in first)
        return keep if options.has("d", "delete") else "".join(char if char in first else second[-1:] for char in text)
    if options.has("d", "delete"):
        return "".join(char for char in text if char not in first)
    if not second:
        return re.sub(r"(.)\1+", lambda m: m[1] if m[1] in first else m[0], text, flags=re.S)
    second = second + second[-1] * (len(first) - len(second))
    return text.translate({ord(a): b for a, b in reversed(list(zip(first, second, strict=False)))})


_TR_CLASSES = {
    "lower": "abcdefghijklmnopqrstuvwxyz",
    "upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "digit": "0123456789",
    "space": " \t\n\r\f\v",
    "blank": " \t",
    "punct": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
}
_TR_CLASSES["alpha"] = _TR_CLASSES["upper"] + _TR_CLASSES["lower"]
_TR_CLASSES["alnum"] = _TR_CLASSES["digit"] + _TR_CLASSES["alpha"]


def _tr_set(text: str) -> str:
    text = re.sub(r"\[:(\w+):\]", lambda m: _TR_CLASSES.get(m[1], ""), text)
    text = ansi_c(text)
    return re.sub(
        r"(.)-(.)",
        lambda m: "".join(map(chr, range(ord(m[1]), min(ord(m[2]), ord(m[1]) + 300) + 1))) if m[1] <= m[2] else m[0],
        text,
        flags=re.S,
    )


@program("cut gcut")
def _cut(call: Call) -> str:
    options = call.options("cdfb", ("characters", "delimiter", "fields", "bytes", "output-delimiter"))
    text = _inputs(call, options.rest)
    spec = unglob(options.get("c", "b", "f", "characters", "bytes", "fields"))
    if not known(text):
        return text if not taints(text).strip(ATOM + FILE) else taints(text)
    delimiter = options.get("d", "delimiter") or "\t"
    by_field = bool(options.get("f", "fields"))
    lines = [_pick(line.split(delimiter) if by_field else list(line), spec) for line in text.splitlines()]
    return "".join((delimiter if by_field else "").join(line) + "\n" for line in lines)


def _pick(items: list[str], spec: str) -> list[str]:
    chosen: list[str] = []
    for part in spec.split(","):
        found = re.fullmatch(r"(\d*)(-?)(\d*)", part.strip())
        if found:
            first = int(found[1] or 1)
            last = int(found[3]) if found[3] else len(items) if found[2] else first
            chosen += items[first - 1 : last]
    return chosen


@program("seq gseq")
def _seq(call: Call) -> str:
    numbers = [int(arg) for arg in call.args if re.fullmatch(r"-?\d+", arg)]
    if not 1 <= len(numbers) <= 3 or len(numbers) != len(call.args):
        return ATOM
    first, step, last = (
        (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[1]) if len(numbers) == 2 else numbers
    )
    span = range(first, last + (1 if step > 0 else -1), step or 1)
    return "".join(f"{number}\n" for number in span) if len(span) <= 200 else ATOM


@program("yes")
def _yes(call: Call) -> str:
    return (unglob(" ".join(call.args)) + "\n" if call.args else "y\n") + SELF


@program("basename dirname realpath readlink")
def _names(call: Call) -> str:
    options = call.options("s", ("suffix", "relative-to"))
    if not options.rest:
        return ""
    path = unglob(solid(options.rest[0]))
    if call.name == "basename":
        name = path.rstrip("/").rsplit("/", 1)[-1] or "/"
        return (name.removesuffix(options.rest[1]) if len(options.rest) > 1 else name) + "\n"
    if call.name == "dirname":
        return (
            ((path.rstrip("/").rsplit("/", 1)[0] or "/") if "/" in path.rstrip("/") else ".") + "\n"
            if path.strip("/")
            else "/\n"
        )
    return call.locate(path)[0] + "\n"


@program(
    "date id whoami hostname uname nproc wc stat md5sum sha256sum sha1sum sha512sum cksum du "
    "df uuidgen expr bc tty getconf pgrep pidof lsof ls dir vdir exa eza lsd jq yq factor numfmt "
    "b2sum file tput locale who w uptime free vmstat lscpu lsblk nm ldd objdump readelf diff "
    "cmp colordiff ps groups logname users fd fdfind tree sha224sum shasum md5 cloc tokei scc"
)
def _atoms(call: Call) -> str | None:
    options = call.options(
        "dIDtTfxXE" if call.name in ("fd", "fdfind") else "", ("args", "arg", "argjson", "exec", "exec-batch")
    )
    if call.name == "date" and any(arg.startswith(("-s", "--set")) for arg in call.args):
        call.emit("kernel.clock")
    if call.name == "hostname" and options.rest and not options.flags:
        call.emit("kernel.clock")
    if call.name in ("fd", "fdfind"):
        return _fd(call)
    if call.name in ("ls", "dir", "vdir", "exa", "eza", "lsd", "tree"):
        return _ls(call, options.rest, options.has("d", "directory"))
    if call.name == "ps":
        return _ps(call)
    if call.name == "pgrep":
        return (
            STAR
            if options.has("v", "inverse") or (options.rest and not unglob(options.rest[-1]).strip(".*^$"))
            else ATOM + "\n"
        )
    if call.name in ("expr",):
        return _expr([unglob(arg) for arg in call.args])
    if call.name in ("jq", "yq"):
        return _jq(call, options.rest)
    if call.name in (
        "wc",
        "md5sum",
        "sha256sum",
        "sha1sum",
        "sha512sum",
        "diff",
        "cmp",
        "file",
        "stat",
        "cksum",
        "b2sum",
        "colordiff",
        "strings",
        "shasum",
    ):
        for path in options.rest:
            kind = call.locate(path)[1]
            if kind == "secret" and call.name in ("diff", "cmp", "colordiff"):
                call.read(path)
    return ATOM + "\n"


def _ps(call: Call) -> str:
    """All processes; the BSD option `e` shows their environments too."""
    values = {
        index + 1
        for index, arg in enumerate(call.args)
        if arg
        in (
            "-o",
            "-p",
            "-C",
            "-u",
            "-U",
            "--sort",
            "-t",
            "-g",
            "o",
            "-O",
            "--format",
            "--pid",
            "--ppid",
            "-eo",
            "-Ao",
            "-axo",
            "axo",
            "-ao",
        )
    }
    if any(
        re.fullmatch(r"[a-zA-Z]*e[a-zA-Z]*", arg)
        for index, arg in enumerate(call.args)
        if index not in values and not arg.endswith("o")
    ):
        call.machine.emit("read", "the environment of other processes", "secret", program="ps")
    return STAR + "\n" if not any(arg.startswith("-p") for arg in call.args) else ATOM


def _ls(call: Call, paths: list[str], itself: bool) -> str:
    """Names: all of a directory's (an active *), or those of a pattern."""
    if itself or any(has_glob(path) for path in paths):
        return "".join((path if path.strip(STAR + "/.") == "" else path.replace(STAR, ATOM)) + "\n" for path in paths)
    return STAR + "\n"


def _fd(call: Call) -> str:
    from .machine import Feed

    options = call.options(
        "ecEdtSxXoj", ("exclude", "type", "extension", "max-depth", "exec", "exec-batch", "color"), posix=False
    )
    pattern = unglob(options.rest[0]) if options.rest else "."
    root = options.rest[1] if len(options.rest) > 1 and "-x" not in call.args[:1] else "."
    found = (
        root
        if not pattern.strip(".*^$") and not set(options.values) - {"x", "X"}
        else f"{root.rstrip('/')}/{ATOM}/{ATOM}"
    )
    words = call.args
    for flag in ("-x", "--exec", "-X", "--exec-batch"):
        if flag in words:
            call.run(
                [word.replace("{}", found) for word in words[words.index(flag) + 1 :]]
                + ([found] if "{}" not in words else []),
                Feed(),
            )
    return found + "\n"


def _expr(args: list[str]) -> str:
    if len(args) == 4 and args[0] == "substr" and args[2].isdigit() and args[3].isdigit() and known(args[1]):
        return args[1][int(args[2]) - 1 : int(args[2]) - 1 + int(args[3])] + "\n"
    return ATOM + "\n"


def _jq(call: Call, rest: list[str]) -> str:
    """jq can print what its program holds as text; apart from that it picks from its input."""
    if not rest:
        return call.stdin
    program_text = unglob(rest[0])
    text = _inputs(call, rest[1:]) if rest[1:] else call.stdin
    literal = re.fullmatch(r'\s*"((?:[^"\\]|\\.)*)"\s*(\|\s*@base64d)?\s*', program_text)
    if literal:
        body = codecs.decode(literal[1], "unicode_escape") if known(literal[1]) else literal[1]
        return (_decoded(body, _loose_base64) if literal[2] else body) + "\n"
    if "@base64d" in program_text:
        return _decoded(text.strip().strip('"'), _loose_base64)
    if known(text) and text:
        plain = re.fullmatch(r"\.(\w*)", program_text.strip())
        return _json_field(text, plain[1]) if plain else DISGUISED
    return taints(text).replace(FILE, UNKNOWN) or UNKNOWN


def _json_field(text: str, name: str) -> str:
    import json

    try:
        value = json.loads(text)
        value = value[name] if name else value
    except (ValueError, KeyError, TypeError, RecursionError):
        return DISGUISED
    return value + "\n" if isinstance(value, str) else json.dumps(value) + "\n"


@program("grep egrep fgrep rg ag ack zgrep ggrep ugrep")
def _grep(call: Call) -> str:
    options = call.options(
        "efmABCgtTjdDM",
        (
            "regexp",
            "file",
            "include",
            "exclude",
            "exclude-dir",
            "glob",
            "type",
            "max-count",
            "context",
            "color",
            "after-context",
            "before-context",
            "pre",
            "type-not",
            "colors",
            "sort",
            "max-depth",
        ),
    )
    if options.get("pre"):
        call.emit("exec.hidden", options.get("pre"))
        call.shell(options.get("pre"))
    rest = options.rest if options.all("e", "regexp", "f", "file") else options.rest[1:]
    text = _inputs(call, rest) if rest else call.stdin
    for path in rest:
        full, kind, flags = call.locate(path)
        if (
            kind in ("home", "root")
            and "inner" not in flags
            and options.has("r", "R", "recursive")
            and re.search(r"(?i)key|secret|passw|token|BEGIN", " ".join(call.args))
        ):
            call.machine.emit("read", full, "secret", program=call.name)
            text = SECRET
    if options.has("l", "files-with-matches", "files") or options.has("c", "count"):
        return ATOM + "\n"
    if (
        STAR in text
        and not options.has("v", "invert-match")
        and unglob(options.rest[0] if options.rest else "").strip("^.*[0-9]+$")
    ):
        return text.replace(STAR, ATOM)
    if known(text) and text and options.rest and STAR not in text:
        return _matched(
            text, unglob(options.rest[0]), options.has("v", "invert-match"), options.has("o", "only-matching")
        )
    return text or ATOM + "\n"


def _matched(text: str, pattern: str, invert: bool, only: bool) -> str:
    try:
        regex = re.compile(
            re.sub(
                r"\[\[:(\w+):\]\]",
                lambda m: {"alpha": "[a-zA-Z]", "digit": r"\d", "space": r"\s", "alnum": "[a-zA-Z0-9]"}.get(m[1], "."),
                pattern,
            )
        )
    except (re.error, RecursionError):
        return text
    if only:
        return "".join(found[0] + "\n" for line in text.splitlines() for found in regex.finditer(line) if found[0])
    return "".join(line for line in text.splitlines(True) if bool(regex.search(line)) != invert)


@program("envsubst")
def _envsubst(call: Call) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda m: str(call.state.get(m[1])), call.stdin)
