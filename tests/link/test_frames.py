"""The frame codec alone: it reads what it writes, and refuses everything that is not a frame."""

import os
import struct
import time

import pytest

from belljar.link import frames, wire
from belljar.link.frames import Flag, FrameError

ENDED = struct.pack("<4I6Q2I", 1, 3, 0, 2, 10, 20, 4096, 999, 5, 6, 0, 0)


def test_an_ended_frame_is_parsed() -> None:
    body = frames.parse_ended(ENDED)
    assert (body.cause, body.exit_code, body.survivors, body.maxrss, body.wall_us) == (
        1,
        3,
        2,
        4096,
        999,
    )


@pytest.mark.parametrize("fields", [(9, 0, 0), (1, 256, 0), (2, 0, 128), (0, 0, 0)])
def test_an_impossible_ended_frame_is_refused(fields: tuple[int, int, int]) -> None:
    with pytest.raises(FrameError):
        frames.parse_ended(struct.pack("<4I6Q2I", *fields, 0, 0, 0, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("fields", [(1, 255, 0), (2, 0, 127), (1, 0, 0)])
def test_the_ends_of_what_is_possible_are_accepted(
    fields: tuple[int, int, int],
) -> None:
    body = frames.parse_ended(
        struct.pack("<4I6Q2I", *fields, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    )
    assert (body.cause, body.exit_code, body.signal) == fields


@pytest.mark.parametrize(
    ("cwd", "told"), [("/a/é\udcff", "/a/é\udcff"), ("a", None), ("", None)]
)
def test_a_state_has_the_directory_if_it_is_one(cwd: str, told: str | None) -> None:
    payload = struct.pack("<QQII", 7, 8, 0, frames.Doing.WAITS) + os.fsencode(cwd)
    assert frames.parse_state(payload) == frames.CommandState(7, 8, told, True, False)


def reported(*files: tuple[str, bytes], there: bytes = b"\1\0") -> bytes:
    rows = ((name.encode(), content) for name, content in [*files, ("", there)])
    return b"".join(
        struct.pack("<II", len(name), len(content)) + name + content
        for name, content in rows
    )


def test_a_testimony_has_each_file_once_and_so_many_at_most() -> None:
    most = [(f"/{number}", b"x") for number in range(frames.TESTIMONY_FILES)]
    parsed = frames.parse_testimony(reported(*most))
    assert (len(parsed.files), parsed.there) == (frames.TESTIMONY_FILES, (True, False))
    for wrong in (
        reported(*most, ("/more", b"x")),
        reported(("/a", b"x"), ("/a", b"y")),
        reported(there=b"\2"),
        reported() + b"x",
        reported(("/a", b"x"))[:-1],
    ):
        with pytest.raises(FrameError):
            frames.parse_testimony(wrong)


def reply(
    out: bytes, err: bytes, *, total: int, out_len: int | None = None, state: int = 0
) -> bytes:
    length = len(out) if out_len is None else out_len
    return (
        struct.pack("<QQIQQII", 0, total, length, 0, len(err), len(err), state)
        + bytes(72)
        + out
        + err
    )


def test_a_read_reply_is_split_into_its_streams() -> None:
    parsed = frames.parse_read_reply(reply(b"out", b"err!", total=3))
    assert (parsed.out, parsed.err, parsed.ended) == (b"out", b"err!", None)


@pytest.mark.parametrize(
    "raw",
    [
        reply(b"out", b"", total=3, out_len=2),
        reply(b"out", b"", total=2),
        reply(b"", b"", total=0, state=2),
        reply(b"", b"", total=0, state=1),
        b"short",
    ],
    ids=["length", "more than there ever was", "state", "an empty ending", "short"],
)
def test_a_read_reply_that_does_not_add_up_is_refused(raw: bytes) -> None:
    with pytest.raises(FrameError):
        frames.parse_read_reply(raw)


def entry(name: bytes, content: bytes) -> bytes:
    return frames.u32(len(name), len(content)) + name + content


def test_a_testimony_is_parsed() -> None:
    parsed = frames.parse_testimony(
        entry(b"/proc/self/status", b"Uid:\t1\n\xff") + entry(b"", b"\1\0")
    )
    assert parsed.files == {"/proc/self/status": "Uid:\t1\n\udcff"}
    assert parsed.there == (True, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        entry(b"/a", b"b"),
        entry(b"/a", b"b") + entry(b"/a", b"c") + entry(b"", b""),
        entry(b"", b"") + b"more",
        entry(b"", b"\2"),
        frames.u32(5, 1 << 31) + b"/a",
        frames.u32(1 << 31, 0),
        b"".join(entry(b"/%d" % number, b"") for number in range(40)) + entry(b"", b""),
    ],
    ids=[
        "empty",
        "no end",
        "twice",
        "extra bytes",
        "neither",
        "length",
        "name",
        "too many",
    ],
)
def test_a_testimony_that_does_not_add_up_is_refused(raw: bytes) -> None:
    with pytest.raises(FrameError):
        frames.parse_testimony(raw)


def listed(tag: bytes, tag_len: int | None = None) -> bytes:
    head = struct.pack("<QIIIQQQ", 5, 1, int(Flag.BACKGROUND), 12, 1000, 3, 4)
    return head + ENDED + frames.u32(len(tag) if tag_len is None else tag_len) + tag


def test_a_list_reply_is_parsed() -> None:
    first, second = frames.parse_list(
        frames.u32(2) + listed(b"npm start") + listed(b"")
    )
    assert (first.id, first.tag, first.pid, second.tag) == (5, b"npm start", 12, b"")
    assert first.ended is not None


def test_a_list_of_more_commands_than_there_can_be_is_refused_before_it_is_read() -> (
    None
):
    with pytest.raises(FrameError, match="there can be at most"):
        frames.parse_list(frames.u32(frames.LISTED_MAX + 1))


def test_a_long_list_takes_no_longer_than_its_length() -> None:
    count = frames.LISTED_MAX
    started = time.process_time()
    assert len(frames.parse_list(frames.u32(count) + listed(b"") * count)) == count
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    "raw",
    [
        frames.u32(2) + listed(b"x"),
        frames.u32(0) + b"x",
        frames.u32(1) + listed(b"x", 99),
    ],
)
def test_a_list_that_does_not_add_up_is_refused(raw: bytes) -> None:
    with pytest.raises(FrameError):
        frames.parse_list(raw)


def test_an_init_of_another_version_is_refused() -> None:
    with pytest.raises(
        FrameError, match=f"protocol 99, this Belljar protocol {wire.VERSION}"
    ):
        frames.parse_welcome(struct.pack("<IIQII", 99, 1, 99, 0, 0))


def test_a_spawn_that_is_too_large_is_refused_before_it_is_sent() -> None:
    with pytest.raises(FrameError):
        frames.spawn(1, [b"x" * frames.MAX_TO_INIT], flags=Flag.SHELL)


def test_a_spawn_carries_its_strings_in_order() -> None:
    raw = frames.spawn(
        1,
        [b"ls", b"-l"],
        flags=Flag.DEFAULT_ENV,
        cwd=b"/workspace/a",
        env={b"A": b"1"},
        tag=b"T",
    )
    assert raw.endswith(b"T/workspace/a\0ls\0-l\0A=1\0")
