"""The exec stream against a server that speaks the WebSocket itself: bytes both ways, and everything that can break."""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.engines.kubernetes.api_server import FakeServer, Peer

from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.kubernetes.exec_stream import CHUNK, ExecStream
from belljar.errors import EngineError, EngineUnavailable

Stream = Callable[[Callable[[Peer], None]], ExecStream]


@pytest.fixture
def stream(server: FakeServer, engine: KubernetesEngine) -> Iterator[Stream]:
    opened: list[ExecStream] = []

    def open_with(script: Callable[[Peer], None]) -> ExecStream:
        server.exec = script
        opened.append(engine.bridge("pod-1", ["/x/init", "--bridge"]))
        return opened[-1]

    yield open_with
    for each in opened:
        each.close()


def received(stream: ExecStream, size: int, seconds: float = 30) -> bytes:
    """As the event loop would read: whenever the descriptor is ready."""
    data, deadline = b"", time.monotonic() + seconds
    while len(data) < size and time.monotonic() < deadline:
        try:
            part = stream.recv(1 << 16)
        except BlockingIOError:
            select.select([stream], [], [], 1)
            continue
        if not part:
            break
        data += part
    return data


def send_all(stream: ExecStream, data: bytes) -> None:
    while data:
        try:
            data = data[stream.send(data) :]
        except BlockingIOError:
            select.select([], [stream], [], 5)


def test_it_runs_the_program_in_the_sandbox_s_container(
    server: FakeServer, stream: Stream
) -> None:
    stream(lambda peer: None).close()
    path = next(path for _, path in server.requests if "/exec" in path)
    assert path.startswith(
        "/api/v1/namespaces/team/pods/pod-1/exec?command=%2Fx%2Finit&command=--bridge&container=sandbox"
    )
    assert "stdin=true" in path
    assert "tty=false" in path


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
def test_bytes_go_both_ways_with_new_and_old_servers(
    server: FakeServer, stream: Stream, protocol: str
) -> None:
    server.protocol = protocol
    sent = os.urandom(3 << 20)

    def echo(peer: Peer) -> None:
        total = 0
        while total < len(sent):
            opcode, payload = peer.hear()
            assert (opcode, payload[0]) == (2, 0)
            total += len(payload) - 1
            peer.say(1, payload[1:])

    opened = stream(echo)
    assert opened.protocol == protocol
    writing = threading.Thread(target=send_all, args=[opened, sent])
    writing.start()
    assert received(opened, len(sent)) == sent
    writing.join()
    opened.close()


def test_a_message_in_fragments_is_one_channel_s(stream: Stream) -> None:
    def script(peer: Peer) -> None:
        peer.say(1, b"one ", final=False)
        peer.raw(b"two ", opcode=0, final=False)
        peer.raw(b"three", opcode=0)
        peer.say(2, b"not this")
        peer.say(1, b"!")
        peer.hear()

    assert received(stream(script), len(b"one two three!")) == b"one two three!"


def test_a_ping_is_answered_between_two_messages(stream: Stream) -> None:
    heard: list[tuple[int, bytes]] = []
    done = threading.Event()

    def script(peer: Peer) -> None:
        peer.raw(b"are you there", opcode=9)
        peer.say(1, b"x")
        heard.extend(peer.hear() for _ in range(2))
        done.set()

    opened = stream(script)
    assert received(opened, 1) == b"x"
    send_all(opened, b"hello")
    assert done.wait(20)
    assert heard == [(10, b"are you there"), (2, b"\0hello")]


def test_a_full_connection_takes_nothing_until_there_is_room(stream: Stream) -> None:
    go = threading.Event()
    got = bytearray()
    sent = os.urandom(24 << 20)

    def script(peer: Peer) -> None:
        go.wait(30)
        while len(got) < len(sent):
            got.extend(peer.hear()[1][1:])
        peer.say(1, b"all")

    opened, rest = stream(script), sent
    with contextlib.suppress(BlockingIOError):
        while rest:
            rest = rest[opened.send(rest) :]
    assert rest, "it took more than the connection can hold"
    taken = len(sent) - len(rest)
    assert taken % CHUNK == 0, "a message is taken whole or not at all"
    go.set()
    send_all(opened, rest)
    assert received(opened, 3) == b"all"
    assert bytes(got) == sent


def test_the_end_of_the_program_is_the_end_of_the_stream(stream: Stream) -> None:
    failure = json.dumps({"status": "Failure", "reason": "NonZeroExitCode"}).encode()

    def script(peer: Peer) -> None:
        peer.say(1, b"last")
        peer.say(2, b"why")
        peer.say(3, failure)
        peer.hear()

    opened = stream(script)
    assert received(opened, 4) == b"last"
    assert received(opened, 1) == b""
    assert b"why" in opened.last_words
    assert b"NonZeroExitCode" in opened.last_words


def test_something_on_a_channel_that_does_not_exist_is_an_error(stream: Stream) -> None:
    with pytest.raises((OSError, EngineUnavailable), match="channel 9"):
        received(stream(lambda peer: peer.say(9, b"x")), 1)


@pytest.mark.parametrize(
    "script",
    [
        lambda peer: peer.connection.sendall(b"\xff\xff\xff\xff"),
        lambda peer: peer.connection.sendall(b"\x82\xff" + b"\xff" * 12),
        lambda peer: peer.raw(b"\0", opcode=0),
    ],
    ids=["garbage", "masked", "fragment of nothing"],
)
def test_a_server_that_breaks_the_protocol_ends_the_stream(
    stream: Stream, script: Callable[[Peer], None]
) -> None:
    assert received(stream(script), 1) == b""


def test_a_cut_stream_is_an_end_never_data(stream: Stream) -> None:
    assert received(stream(lambda peer: peer.say(1, b"x")), 5) == b"x"


def test_what_a_program_says_of_its_end_is_bounded(stream: Stream) -> None:
    def script(peer: Peer) -> None:
        for _ in range(200):
            peer.say(2, b"e" * 60_000)
        peer.say(1, b"x")
        peer.hear()

    opened = stream(script)
    assert received(opened, 1) == b"x"
    assert len(opened.last_words) <= 4096


def test_a_server_that_speaks_neither_protocol_is_refused(
    server: FakeServer, stream: Stream
) -> None:
    server.protocol = None
    with pytest.raises(EngineError, match="speaks none of v5"):
        stream(lambda peer: None)


def test_a_refusal_is_told_in_the_server_s_words(
    server: FakeServer, stream: Stream
) -> None:
    server.failures.append(("GET", "/exec", 403, 'pods "pod-1" is forbidden: no exec'))
    with pytest.raises(EngineError, match="is forbidden: no exec"):
        stream(lambda peer: None)


def test_a_server_that_is_gone_is_unavailable(
    server: FakeServer, engine: KubernetesEngine
) -> None:
    server.__exit__()
    with pytest.raises(EngineUnavailable, match="connecting to the sandbox"):
        engine.bridge("pod-1", ["x"])
