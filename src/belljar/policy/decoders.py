"""Encoders and decoders: known text is really decoded, so that a disguise falls off."""

import base64
import binascii
import bz2
import lzma
import re
import zlib
from collections.abc import Callable

from .call import Call, Options
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, SECRET, UNKNOWN, known, solid, taints
from .reading import FILTERS

MAX_INFLATED = 1 << 20  # a few hundred bytes can hold gigabytes


def decoded(text: str, decode: Callable[[bytes], bytes]) -> str:
    """A decoder on known text gives its text; on text that is not known, something that nobody can see."""
    if not known(text):
        return taints(text).replace(FILE, UNKNOWN).replace(ATOM, UNKNOWN)
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


def encoded(text: str, encode: Callable[[bytes], bytes]) -> str:
    if known(text):
        return encode(text.encode("utf-8", "replace")).decode("ascii", "replace")
    return ENCODED + re.sub(f"[{FILE}{ATOM}{UNKNOWN}]", "", taints(text))


def loose_base64(raw: bytes) -> bytes:
    raw = re.sub(rb"[^A-Za-z0-9+/=]", b"", raw.translate(bytes.maketrans(b"-_", b"+/"))).rstrip(b"=")
    return base64.b64decode(raw + b"=" * (-len(raw) % 4))


def unhex(raw: bytes) -> bytes:
    raw = b"".join(re.sub(rb"^[0-9a-fA-F]+:\s*", b"", line).split(b"  ")[0] for line in raw.splitlines())
    raw = re.sub(rb"[^0-9a-fA-F]", b"", raw.replace(b"0x", b""))
    return binascii.unhexlify(raw[: len(raw) // 2 * 2])


def inflate(raw: bytes) -> bytes:
    return zlib.decompressobj(47).decompress(raw, MAX_INFLATED)


_INFLATE: dict[str, Callable[[bytes], bytes]] = {
    "b": lambda raw: bz2.BZ2Decompressor().decompress(raw, MAX_INFLATED),
    "x": lambda raw: lzma.LZMADecompressor(memlimit=128 << 20).decompress(raw, MAX_INFLATED),
}


def base_64(call: Call, options: Options, text: str) -> str:
    small = call.name == "base32" or options.has("base32")
    if options.has("d", "D", "decode", "i", "ignore-garbage"):
        return decoded("".join(text.split()) if known(text) else text, base64.b32decode if small else loose_base64)
    return encoded(text, base64.b32encode if small else base64.b64encode)


def xxd(call: Call, options: Options, text: str) -> str:
    if options.has("r", "revert"):
        return decoded(text, unhex)
    return encoded(text, binascii.hexlify)


def dumped(call: Call, options: Options, text: str) -> str:
    return encoded(text, binascii.hexlify) if not known(text) else DISGUISED if text else ""


def inflated(call: Call, options: Options, text: str) -> str:
    """gunzip, bzcat, xzcat …"""
    kind = call.name.removeprefix("un")[0]
    return decrypted(call, options, text) if "zst" in call.name else decoded(text, _INFLATE.get(kind, inflate))


def compressed(call: Call, options: Options, text: str) -> str:
    return taints(text).replace(FILE, UNKNOWN) or (DISGUISED if text.strip() else FILE)


def decrypted(call: Call, options: Options, text: str) -> str:
    return taints(text).replace(FILE, UNKNOWN) or DISGUISED


def openssl(call: Call, options: Options, text: str) -> str:
    words = [solid(arg) for arg in call.args]
    if not {"enc", "base64"} & set(words[:1]):
        return NETWORK if words[:1] == ["s_client"] else ATOM + taints(text).replace(FILE, "").replace(SECRET, "")
    if "-d" not in words:
        return encoded(text, base64.b64encode)
    cipher = any(re.match(r"-(aes|des|bf|rc|cam|chacha)", word) for word in words)
    return decrypted(call, options, text) if cipher else decoded("".join(text.split()), loose_base64)


FILTERS.update({
    "base64": base_64, "xxd": xxd, "encoded": dumped, "inflated": inflated, "compressed": compressed,
    "decrypted": decrypted, "openssl": openssl,
})  # fmt: skip
