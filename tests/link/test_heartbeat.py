"""A beat of the link's own, beside the loop."""

import socket

import pytest
from tests.link.conftest import stand_still

from belljar.link import frames, heartbeat
from belljar.link.link import Link
from belljar.link.transport import SocketTransport


async def test_a_bridged_link_sends_heartbeats_while_the_event_loop_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.02)
    ours, theirs = socket.socketpair()
    transport = SocketTransport(ours)
    transport.bridged = True  # type: ignore[misc]
    bridged = Link(transport)
    stand_still(0.3)
    bridged.close()
    beat = frames.frame(frames.To.HEARTBEAT)
    assert theirs.recv(4096).startswith(beat * 3)
    theirs.close()
