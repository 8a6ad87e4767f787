"""What parses bytes from a sandbox, an image, a workspace or a server, and the errors with which it may refuse them.

Anything else that it raises is a fault: nobody handles it, and a sandbox chose it. `make test` feeds each briefly
(`tests/attacks/test_hostile_bytes.py`), `make fuzz FUZZ='10 hostile'` at length, guided by coverage.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from belljar import codec
from belljar.engines import kernel_facts
from belljar.errors import BelljarError
from belljar.network import presets, tls
from belljar.network.mux import Mux
from belljar.runs_later import git_settings, values
from belljar.session import archive, bash_channel, files, tar, users
from belljar.session.result import Result
from belljar.staged import git_index
from belljar.workspace.beneath import Folder


@dataclass(frozen=True)
class Parser:
    parse: Callable[[bytes], object]
    words: tuple[bytes, ...] = ()
    """What such bytes are made of."""
    refuses: tuple[type[Exception], ...] = ()
    """How it may refuse them."""


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def _unpacked(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        target = Path(place, "target")
        target.mkdir()
        with Folder.at(target) as folder:
            unpacker = archive.Unpacker(folder)
            try:
                for at in range(0, len(data), 7):
                    unpacker.feed(data[at : at + 7])
            finally:
                unpacker.close()
                assert os.listdir(place) == ["target"]


def _as_tar(data: bytes) -> None:
    async def made() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(data), 7):
                yield data[at : at + 7]

        with tempfile.TemporaryFile() as file:
            async for part in tar.as_tar(pieces()):
                file.write(part)

    asyncio.run(made())


def _from_tar(data: bytes) -> None:
    file = io.BytesIO(data)
    tar.check(file)
    with tempfile.TemporaryDirectory() as place, Folder.at(place) as folder:
        unpacker = archive.Unpacker(folder)
        try:
            for part in islice(tar.from_tar(file), 1000):
                unpacker.feed(part)
        finally:
            unpacker.close()


def _tar_member(name: str, kind: bytes, target: str, content: bytes) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, target, len(content)
    return member.tobuf() + content + bytes(-len(content) % 512)


def _relayed(data: bytes) -> None:
    async def fed() -> None:
        lost: list[bool] = []

        async def write(_: bytes) -> None:
            pass

        mux = Mux(write, lambda stream: None, lambda: lost.append(True))
        for at in range(0, len(data), 11):
            mux.feed(data[at : at + 11])
            await asyncio.sleep(0)
        mux.lose()
        assert lost == [True]

    asyncio.run(fed())


class _Etc:
    """A sandbox whose /etc/passwd and /etc/group are these."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, path: str, *, length: int) -> bytes:
        return self._data[:length]


def _identified(data: bytes) -> None:
    for user in ("u", "1000", "9" * 5000):
        with suppress(BelljarError):
            asyncio.run(users.identity(user, ("root", 0), _Etc(data)))


def _testified(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for name in (
        "self/status",
        "self/limits",
        "self/mountinfo",
        "net/route",
        "net/ipv6_route",
        "swaps",
        "self/uid_map",
    ):
        kernel_facts.testified({f"/proc/{name}": text}, {})
    kernel_facts.testified(
        dict.fromkeys(("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"), text), {}
    )


def _hello(data: bytes) -> None:
    reader, whole = tls.HelloReader(), tls.HelloReader()
    pieces = None
    with suppress(tls.NotTLS):
        for at in range(0, len(data), 3):
            pieces = pieces or reader.feed(data[at : at + 3])
    assert (
        pieces is None
        or pieces.name == getattr(whole.feed(data), "name", None)
        or pieces.size > len(data)
    )


def _named(data: bytes) -> None:
    text, asked_enough = data.decode("utf-8", "replace"), [""] * presets.MOST_INDEXES
    for preset in presets.PRESETS:
        presets._hosts(
            preset,
            presets.Clients(lambda command: text, in_image=True, pages=asked_enough),
        )


def _decoded(data: bytes) -> None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    codec.decode(Result, document)


def _entry(kind: bytes, name: bytes, data: bytes = b"") -> bytes:
    return archive.HEAD.pack(kind, 0o644, len(data), len(name)) + name + data


_JSON = (
    b"{",
    b"}",
    b"[",
    b"]",
    b"[" * 5000,
    b'"',
    b":",
    b",",
    b"null",
    b"1e999",
    b"9" * 5000,
    b"-",
    b"//",
    b"/*",
    b"\\u",
    b"hooks",
)
_NAMES = (b"a", b"a/b", b"../a", b"a\0", b".", b"a//b", b"", b"a/", b"n" * 300)
_ARCHIVE = tuple(
    _entry(bytes([kind]), name, data)
    for kind in b"fdlex"
    for name in _NAMES
    for data in (b"", b"a", b"\0")
)
_TAR = (
    *(
        _tar_member(name, kind, target, content)
        for name in ("a", "a/b", "b/../c", "./a", "n" * 120)
        for kind in (
            tarfile.REGTYPE,
            tarfile.DIRTYPE,
            tarfile.SYMTYPE,
            tarfile.LNKTYPE,
            tarfile.GNUTYPE_SPARSE,
        )
        for target, content in (("a", b""), ("", b"x" * 20))
    ),
    _tar_member("p", tarfile.XHDTYPE, "", b"11 path=a\n12 size=999\n"),
    bytes(1024),
)
_MUX = tuple(
    id.to_bytes(4, "little") + bytes([kind]) + len(data).to_bytes(4, "little") + data
    for id in (0, 1, 2)
    for kind in range(8)
    for data in (b"", b"\0\0", b"\xff\xff\xff\xff", b"x" * 100)
)
_PASSWD = (
    b"u:x:1000:1000::/home/u:/bin/sh\n",
    b":",
    b"u",
    b"9" * 5000,
    b"-1",
    "\u0663".encode(),
    b"\n",
    b"::::::\n",
)

PARSERS: dict[str, Parser] = {
    "records of a directory": Parser(
        lambda data: list(files._records(data)),
        (b"f 644 1 1 a\0\0", b"\0", b" ", b"9" * 5000, b"d 755 0 -1 "),
        (BelljarError,),
    ),
    "matches of a search": Parser(
        lambda data: files._matches(data, 10),
        (b"a\0001\0text\0", b"\0", b"9" * 5000),
        (BelljarError,),
    ),
    "an archive": Parser(_unpacked, _ARCHIVE, (BelljarError, OSError)),
    "an archive as a tar": Parser(_as_tar, _ARCHIVE, (BelljarError,)),
    "a tar": Parser(_from_tar, _TAR, (BelljarError, OSError)),
    "frames of a relay": Parser(_relayed, _MUX),
    "users": Parser(_identified, _PASSWD),
    "exported variables": Parser(
        _text(bash_channel.exported),
        (b'declare -x A="', b"export B=$'", b"\\", b"\\777", b'"', b"'", b"\n"),
    ),
    "a testimony": Parser(
        _testified,
        (
            b"1 2 8:1 / / ro - ext4 x rw\n",
            b" ",
            b" - ",
            b"\n",
            b"CapEff:\t0\n",
            b"max 100000\n",
        ),
        (ValueError,),
    ),
    "an index of git": Parser(
        lambda data: (git_index.names(data), git_index.meaning(data)),
        (b"DIRC\0\0\0\2\0\0\0\1", bytes(62), b"\xff" * 4),
    ),
    "settings of git": Parser(
        git_settings.that_run,
        (
            b"[core]\n",
            b"fsmonitor=x\n",
            b"\\\n",
            b'"',
            b"[include]\npath=",
            b"\xff",
            b"#",
            b"\0",
        ),
    ),
    "hooks in JSON": Parser(lambda data: values.keys(["hooks"], data), _JSON),
    "settings in JSON": Parser(lambda data: values.except_keys(["a.*"], data), _JSON),
    "tasks in JSON": Parser(values.opens, _JSON),
    "a rebase": Parser(values.todo, (b"exec ", b"x ", b"\n", b"#")),
    "clients of an image": Parser(
        _named,
        (
            *_JSON,
            b'"registry":',
            b'"x:registry":',
            b'"https://x/"',
            b"https://y.test/ ",
            b"http://[",
            b"\n",
            b"index.crates",
        ),
    ),
    "a package index": Parser(
        _text(lambda text: presets._links("https://index.test/", text)),
        (
            *_JSON,
            b'{"files":[{"url":"',
            b"http://[",
            b"//a]b/",
            b'href="',
            b"#",
            b"://",
            b"\n",
        ),
        (ValueError, RecursionError),
    ),
    "a ClientHello": Parser(
        _hello,
        (
            b"\x16\x03\x01\0\x05",
            b"\x01\0\0\x01",
            b"\0",
            b"\xff",
            bytes(34),
            b"\x16\x03\x03\0\1\1",
        ),
        (tls.NotTLS,),
    ),
    "a result": Parser(
        _decoded,
        (*_JSON, b'"exit_code":', b'"stdout":', b'"base64"', b'"cause":"exited"'),
        (BelljarError,),
    ),
}


def feed(parser: Parser, parts: Iterable[bytes]) -> None:
    """Raises whatever is no refusal."""
    with suppress(*parser.refuses):
        parser.parse(b"".join(parts))


def bytes_of(parser: Parser, data: Any) -> list[bytes]:
    """Parts that atheris chooses."""
    parts = []
    while data.remaining_bytes():
        if parser.words and data.ConsumeBool():
            parts.append(parser.words[data.ConsumeIntInRange(0, len(parser.words) - 1)])
        else:
            parts.append(data.ConsumeBytes(data.ConsumeIntInRange(0, 12)))
    return parts
