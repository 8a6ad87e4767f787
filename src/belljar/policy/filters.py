"""What programs print that select, decode or change text.

Known text is really decoded. After any other change it becomes DISGUISED. Marks in the text stay.
"""

import base64
import binascii
import re
from collections.abc import Callable

from .call import STDOUT, Call, Options
from .marks import ATOM, DISGUISED, ENCODED, ENDLESS, FILE, NETWORK, STAR, UNKNOWN

from .marks import drop_unset, has_glob, known, plain_text, taints, unglob  # isort: skip
from .paths import HOME
from .reading import FILTERS


def some_of(text: str) -> str:
    """Some lines of a listing of everything."""
    return text.replace(STAR, ATOM)


def _name(call: Call, options: Options, text: str) -> str:
    """basename, dirname, realpath, readlink."""
    path = plain_text(options.rest[0]) if options.rest else ""
    bare = path.rstrip("/")
    if call.name == "basename":
        return (bare.rsplit("/", 1)[-1] or "/").removesuffix(
            "".join(options.rest[1:2])
        ) + "\n"
    if call.name == "dirname":
        return (
            (bare.rsplit("/", 1)[0] or "/") if "/" in bare else "." if bare else "/"
        ) + "\n"
    return call.locate(path)[0] + "\n"


def _grep(call: Call, options: Options, text: str) -> str:
    if options.has("l", "files-with-matches", "files", "c", "count"):
        return ATOM + "\n"
    pattern = unglob((options.all("e", "regexp") or options.rest or [""])[0])
    invert = options.has("v", "invert-match")
    if STAR in text:  # `-v` and patterns for numbers leave nearly everything
        return text if invert or not pattern.strip("^.*[0-9]+$\\d") else some_of(text)
    return DISGUISED if text.strip() and known(text) else text or ATOM + "\n"


def clock(template: str) -> str:
    """A time in this format: the format's own text, and unknown numbers."""
    return re.sub(r"%[-_0^#+:]*[A-Za-z]", ATOM, template) or ATOM


def _listing(call: Call, options: Options, text: str) -> str:
    """Names: all in a directory (an active *), or those that match a pattern."""
    narrow = options.has("d", "directory") or any(
        has_glob(path) for path in options.rest
    )
    return "".join(path + "\n" for path in options.rest) if narrow else STAR + "\n"


def _mktemp(call: Call, options: Options, text: str) -> str:
    template = (
        re.sub(r"X{3,}", ATOM, options.rest[0]) if options.rest else f"tmp.{ATOM}"
    )
    return (
        template
        if template.startswith("/")
        else f"{options.get('p', 'tmpdir') or '/tmp'}/{template}"
    ) + "\n"


def _jq(call: Call, options: Options, text: str) -> str:
    """jq is not computed: what it prints comes from its input, its program or its arguments."""
    program = unglob(options.rest[0]) if options.rest else "."
    given = taints("".join(call.args)).replace(ATOM, "")
    if options.has("n", "null-input"):
        return DISGUISED if '"' in program.partition("@sh")[0] else given or FILE
    if not known(text) or not text.strip():
        return (
            (
                taints(text)
                if "@sh" in program
                else taints(text).replace(FILE, UNKNOWN) or ATOM
            )
            + given
            + "\n"
        )
    return DISGUISED


def _fetched(call: Call, options: Options, text: str) -> str:
    """curl prints what it fetched, unless it goes to files."""
    named = options.has("O", "remote-name", "remote-name-all", "J") or {
        *options.all("o", "output")
    } - {*STDOUT}
    return ATOM if named else text or NETWORK


def _getent(call: Call, options: Options, text: str) -> str:
    text = call.read(f"/etc/{drop_unset(''.join(call.args[:1]))}")
    key = drop_unset("".join(call.args[1:2]))
    lines = [
        line
        for line in text.split("\n")
        if key in line or (not known(key) and HOME in line)
    ]
    return "".join(line + "\n" for line in lines) or FILE


# -- encoders and decoders


def decoded(text: str, decode: Callable[[bytes], bytes]) -> str:
    """Known text is decoded; the marks of unknown text stay, and become UNKNOWN if they were harmless."""
    if not known(text):
        return taints(text).replace(FILE, UNKNOWN).replace(ATOM, UNKNOWN)
    try:
        raw = decode(text.encode("utf-8", "replace"))
    except (ValueError, binascii.Error):
        return DISGUISED if text.strip() else ""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def encoded(text: str, encode: Callable[[bytes], bytes]) -> str:
    if known(text):
        return encode(text.encode("utf-8", "replace")).decode("ascii", "replace")
    return ENCODED + re.sub(f"[{FILE}{ATOM}{UNKNOWN}]", "", taints(text))


def loose_base64(raw: bytes) -> bytes:
    raw = re.sub(
        rb"[^A-Za-z0-9+/=]", b"", raw.translate(bytes.maketrans(b"-_", b"+/"))
    ).rstrip(b"=")
    return base64.b64decode(raw + b"=" * (-len(raw) % 4))


def base_64(call: Call, options: Options, text: str) -> str:
    small = call.name == "base32" or options.has("base32")
    if options.has("d", "D", "decode", "i", "ignore-garbage"):
        return decoded(
            "".join(text.split()) if known(text) else text,
            base64.b32decode if small else loose_base64,
        )
    return encoded(text, base64.b32encode if small else base64.b64encode)


FILTERS.update(
    {
        "name": _name,
        "grep": _grep,
        "listing": _listing,
        "mktemp": _mktemp,
        "jq": _jq,
        "fetched": _fetched,
        "getent": _getent,
        "base64": base_64,
        "head": lambda call, options, text: (  # of one line, all of it
            DISGUISED
            if (options.get("c", "bytes") or "\n" in text.strip())
            and known(text)
            and not has_glob(text)
            else some_of(text.replace(ENDLESS, UNKNOWN))
        ),
        "disguised": lambda call, options, text: (
            DISGUISED if text.strip() and known(text) else text
        ),
        "encoded": lambda call, options, text: encoded(text, binascii.hexlify),
        "decrypted": lambda call, options, text: (
            taints(text).replace(FILE, UNKNOWN) or DISGUISED
        ),
        "yes": lambda call, options, text: (
            (unglob(" ".join(call.args)) or "y") + "\n" + ENDLESS
        ),
        "envsubst": lambda call, options, text: re.sub(
            r"\$\{?(\w+)\}?", lambda m: str(call.state.get(m[1])), call.stdin
        ),
        "date": lambda call, options, text: (
            clock(
                next((unglob(arg[1:]) for arg in call.args if arg.startswith("+")), "")
            )
            + "\n"
        ),
        "wget": lambda call, options, text: (
            text or NETWORK if options.get("O", "output-document") in STDOUT else ATOM
        ),
    }
)
