"""The link's bytes are read from an exec stream, however it is split."""

import socket
import struct

import pytest

from belljar.engines.docker.bridge import STDOUT, Demultiplexed


def wrapped(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


@pytest.mark.parametrize("size", [1, 3, 8, 4096])
def test_only_stdout_passes_and_in_order(size: int) -> None:
    sent = (
        wrapped(STDOUT, b"first ")
        + wrapped(2, b"a warning")
        + wrapped(STDOUT, b"")
        + wrapped(STDOUT, b"second")
    )
    near, far = socket.socketpair()
    with near, far:
        transport = Demultiplexed(near, first=sent[:5])
        far.sendall(sent[5:])
        far.shutdown(socket.SHUT_WR)
        found = b""
        while True:
            try:
                part = transport.recv(size)
            except BlockingIOError:
                continue
            if not part:
                break
            found += part
    assert found == b"first second"
