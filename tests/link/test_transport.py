"""Bytes and descriptors over a Unix socket."""

import os
import socket

import pytest

from belljar.link.transport import SocketTransport


def test_bytes_and_descriptors_arrive_and_a_silent_peer_is_not_taken_for_closed() -> (
    None
):
    near, far = socket.socketpair()
    near.setblocking(False)
    transport = SocketTransport(near)
    with far:
        with pytest.raises(BlockingIOError):
            transport.recv(100)
        reader, writer = os.pipe()
        socket.send_fds(far, [b"with a pipe"], [writer])
        os.close(writer)
        assert transport.recv(100) == b"with a pipe"
        passed = transport.pipes.popleft()
        os.write(passed, b"x")
        assert os.read(reader, 1) == b"x"
        assert not os.get_inheritable(passed)
        os.close(passed)
        os.close(reader)
    assert transport.recv(100) == b""
    transport.close()
