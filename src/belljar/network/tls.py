"""Reads a TLS client's ClientHello (RFC 8446, section 4.1.2): the server name it asks for, or that it hides the name.

What does not parse is not TLS.
"""

from __future__ import annotations

from belljar.records import record

HELLO_MAX = 64 << 10
CHANGE_CIPHER, ALERT, HANDSHAKE, ENCRYPTED, HEARTBEAT = 20, 21, 22, 23, 24
"""Kinds of records."""
RECORD_MAX = 16640
SHORTEST_ENCRYPTED = 24
_CLIENT_HELLO = 1
_SERVER_NAME, _EARLY_DATA, _ENCRYPTED_HELLO, _OLD_ENCRYPTED_NAME = 0, 42, 0xFE0D, 0xFFCE


class NotTLS(Exception):
    """The bytes are not a ClientHello; the text says why."""


@record
class Hello:
    name: str | None
    hides_name: bool
    """Encrypted ClientHello: the real name cannot be read."""
    early_data: bool
    """Whether encrypted records may follow at once. A server that asks for another hello skips them."""
    size: int
    """In bytes, with the headers of its records."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise NotTLS("a ClientHello that is cut short")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def done(self) -> bool:
        return self.at == len(self.data)


def looks_like_tls(data: bytes) -> bool:
    """Whether a record of any kind begins here. Servers accept alerts and others in front of a ClientHello."""
    return CHANGE_CIPHER <= data[0] <= HEARTBEAT


def starts_handshake(data: bytes) -> bool:
    return data[:2] == b"\x16\x03"[: len(data)]


class HelloReader:
    """Reads a ClientHello in pieces. No byte is read twice: a client may send each in a record of its own."""

    def __init__(self) -> None:
        self.data = bytearray()
        """All that was received, also after the hello."""
        self._at = 0
        self._message = bytearray()

    def feed(self, data: bytes) -> Hello | None:
        """The hello; None if more bytes are needed."""
        self.data += data
        while len(self._message) < 4 or len(self._message) < self._wanted:
            if not self._take_record():
                return None
        if len(self._message) != self._wanted:
            raise NotTLS("more than a ClientHello in its record")
        return _parsed(bytes(self._message[4:]), self._at)

    @property
    def _wanted(self) -> int:
        return 4 + int.from_bytes(self._message[1:4], "big")

    def _take_record(self) -> bool:
        head = bytes(self.data[self._at : self._at + 5])
        if not starts_handshake(head[:2]) or self._at > HELLO_MAX:
            raise NotTLS("no TLS handshake")
        length = int.from_bytes(head[3:5], "big")
        if len(head) == 5 and not 0 < length <= 1 << 14:
            raise NotTLS("a record of a wrong size")
        end = self._at + 5 + length
        if len(head) < 5 or len(self.data) < end:
            return False
        self._message += self.data[self._at + 5 : end]
        self._at = end
        if self._message[0] != _CLIENT_HELLO or (
            len(self._message) >= 4 and self._wanted > 4 + HELLO_MAX
        ):
            raise NotTLS("no ClientHello")
        return True


def starts_hello(record: bytes) -> bool:
    """Whether a ClientHello starts in this record, judged by its first 11 bytes (of a short record: 6). An encrypted
    record is at least SHORTEST_ENCRYPTED long, and does not look like this by chance."""
    return record[5] == _CLIENT_HELLO and (
        len(record) < 11 or (record[6] < 3 and record[9] == 3)
    )


def _parsed(body: bytes, size: int) -> Hello:
    reader = _Reader(body)
    reader.take(2 + 32)
    reader.vector(1)
    reader.vector(2)
    reader.vector(1)
    name = None
    hides = False
    early = False
    if reader.done:
        return Hello(name, hides, early, size)
    extensions = _Reader(reader.vector(2))
    if not reader.done:
        raise NotTLS("bytes behind the ClientHello")
    while not extensions.done:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            if name is not None:
                raise NotTLS("two server names")
            name = _server_name(content)
        hides = hides or kind in (_ENCRYPTED_HELLO, _OLD_ENCRYPTED_NAME)
        early = early or kind == _EARLY_DATA
    return Hello(name, hides, early, size)


def _server_name(content: bytes) -> str:
    names = _Reader(_Reader(content).vector(2))
    kind, value = names.number(1), names.vector(2)
    if kind != 0 or not names.done:
        raise NotTLS("a server name of an unknown kind")
    try:
        return value.decode("ascii").lower()
    except UnicodeDecodeError as error:
        raise NotTLS("a server name that is no ASCII") from error
