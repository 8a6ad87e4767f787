"""Frames are found in a stream of bytes, however it is split."""

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.parsers import PARSERS
from tests.link.conftest import ENDED

from belljar.link import frames, wire
from belljar.link.decoder import Decoder, Frame
from belljar.link.frames import FrameError, From, To


def sent(
    kind: int, payload: bytes = b"", *, stream: int = 0, id: int = 7, zero: int = 0
) -> bytes:
    return frames.HEADER.pack(len(payload), kind, stream, zero, id) + payload


def output(data: bytes, offset: int = 0) -> bytes:
    return sent(From.OUTPUT, struct.pack("<Q", offset) + data, stream=1)


def in_steps(raw: bytes, step: int) -> list[Frame]:
    decoder = Decoder()
    return [
        frame
        for at in range(0, len(raw), step)
        for frame in decoder.feed(raw[at : at + step])
    ]


@pytest.mark.parametrize("step", [1, 3, 16, 17, 4096, 1 << 20])
def test_frames_are_found_however_the_bytes_are_cut(step: int) -> None:
    data = bytes(range(256)) * 300
    got = in_steps(
        sent(From.STARTED, frames.u32(42)) + output(data) + sent(From.ENDED, ENDED),
        step,
    )
    assert got[0] == (From.STARTED, 0, 7, frames.u32(42))
    assert got[-1] == (From.ENDED, 0, 7, ENDED)
    assert (
        b"".join(payload for kind, _, _, payload in got if kind == From.OUTPUT) == data
    )


def test_a_long_output_is_handed_on_before_it_is_complete() -> None:
    decoder = Decoder()
    raw = output(b"x" * 1000)
    assert decoder.feed(raw[:500]) == [(From.OUTPUT, 1, 7, b"x" * (500 - 24))]


@pytest.mark.parametrize(
    "raw",
    [
        sent(99),
        sent(To.SPAWN),
        sent(From.STARTED, frames.u32(1), zero=1),
        sent(From.STARTED, frames.u32(1), stream=9),
        sent(From.STARTED, frames.u32(1), stream=1),
        sent(From.INPUT_ACK, bytes(8), stream=4),
        sent(From.STARTED, b""),
        sent(From.PONG, bytes(9)),
        frames.HEADER.pack(wire.FROM_INIT_MAX + 1, From.OUTPUT, 1, 0, 7),
        sent(From.OUTPUT, b"short"),
    ],
    ids=str,
)
def test_invalid_frames_are_refused(raw: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(raw)


def test_the_tag_of_a_read_reply_may_be_any_byte() -> None:
    assert Decoder().feed(sent(From.READ_REPLY, bytes(200), stream=255))[0][1] == 255


def test_an_output_frame_without_data_is_refused() -> None:
    with pytest.raises(FrameError):
        Decoder().feed(output(b""))


def test_a_long_frame_in_small_pieces_takes_no_longer_than_its_length() -> None:
    started = time.process_time()
    assert len(in_steps(sent(From.READ_REPLY, bytes(1 << 20)), 8)) == 1
    assert time.process_time() - started < 3


@given(st.binary(max_size=400), st.integers(1, 50))
def test_random_bytes_raise_nothing_but_frame_errors(raw: bytes, step: int) -> None:
    try:
        for kind, _, _, payload in in_steps(raw, step):
            if kind in PARSERS:
                PARSERS[From(kind)](payload)
    except FrameError:
        pass


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.integers(1, 999))
def test_output_is_the_same_however_the_bytes_are_cut(
    parts: list[bytes], step: int
) -> None:
    raw = b"".join(output(part) for part in parts)
    assert b"".join(payload for _, _, _, payload in in_steps(raw, step)) == b"".join(
        parts
    )
