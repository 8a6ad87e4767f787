"""Encoders and decoders: known text is really decoded, so that a disguise falls off."""

import base64
import binascii
import bz2
import lzma
import re
import zlib
from collections.abc import Callable

from .call import Call, program
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, SECRET, UNKNOWN, clip, known, solid, taints


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
    "base64 base32 basenc uudecode uuencode gbase64 xxd hexdump od openssl gpg gunzip zcat bunzip2 "
    "unxz unzstd zstdcat xzcat bzcat iconv recode ascii2uni qprint age ccrypt mcrypt"
)
def _codec(call: Call) -> str | None:
    options = call.options(
        {"od": "AjNSwt", "hexdump": "efns", "xxd": "csgl", "iconv": "fto", "uudecode": "o"}.get(
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
        "bunzip2": _bunzip,
        "bzcat": _bunzip,
        "unxz": _unxz,
        "xzcat": _unxz,
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


_INFLATED = 1 << 20  # a few hundred bytes can hold gigabytes


def _inflate(raw: bytes) -> bytes:
    return zlib.decompressobj(47).decompress(raw, _INFLATED)


def _bunzip(raw: bytes) -> bytes:
    return bz2.BZ2Decompressor().decompress(raw, _INFLATED)


def _unxz(raw: bytes) -> bytes:
    return lzma.LZMADecompressor(memlimit=128 << 20).decompress(raw, _INFLATED)


def _openssl(call: Call) -> str | None:
    words = [solid(arg) for arg in call.args] or [""]
    paths = {
        flag: words[i + 1]
        for i, flag in enumerate(words[:-1])
        if flag in ("-in", "-out", "-connect", "-engine", "-key", "-inkey")
    }
    if words[:1] == ["s_client"]:
        if call.stdin.strip(" \nQ") or call.machine.fifos:  # else it only looks at the certificate
            local = re.match(r"localhost|127\.", paths.get("-connect", ""))
            call.emit("net.socket", paths.get("-connect", ""), *(["local"] if local else []))
        from .network import sends

        sends(call, call.stdin, paths.get("-connect", ""))
        return NETWORK
    if "-engine" in paths and "/" in paths["-engine"]:
        call.emit("exec.hidden")
    text = call.read(paths["-in"]) if "-in" in paths else call.stdin
    made = _openssl_made(words, text)
    if "-out" in paths:
        call.write(paths["-out"], made if words[0] in ("enc", "base64") else FILE)
        return ""
    return made


def _openssl_made(words: list[str], text: str) -> str:
    decoding = "-d" in words and words[0] in ("enc", "base64")
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


def _gpg(call: Call, rest: list[str]) -> str | None:
    target = next((call.args[i + 1] for i, arg in enumerate(call.args[:-1]) if arg in ("-o", "--output")), "")
    if target:
        call.write(target)
    if re.search(r"--export-secret|--export-options.*secret", " ".join(call.args)):
        call.machine.emit("read", "~/.gnupg", "secret", program="gpg")
        return SECRET
    text = "".join(call.read(path) for path in rest) + call.stdin
    return taints(text).replace(FILE, UNKNOWN) or DISGUISED
