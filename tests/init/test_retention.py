"""Ended background commands are kept until they are forgotten, but never block new commands."""

from __future__ import annotations

from collections.abc import Callable

from tests.init.client import (
    IN_BACKGROUND,
    LIST,
    LIST_REPLY,
    WIRE,
    Box,
    Connection,
    Run,
    frame,
)

MakeBox = Callable[..., Box]

MIB = 1 << 20


def ended(link: Connection, text: str, **options: object) -> Run:
    run = link.shell(text, IN_BACKGROUND, **options)
    link.until(lambda: run.pid)
    while link.read(run.id, most=0, wait=1000, out=1 << 60, err=1 << 60).ended is None:
        pass
    return run


def test_the_oldest_output_is_dropped_first_and_counted(make_box: MakeBox) -> None:
    box = make_box()
    link = box.connect()
    runs = [
        ended(link, f"head -c {2 * MIB} /dev/zero", ring=2 * MIB) for _ in range(20)
    ]
    assert box.memory() < 40 * MIB
    first, last = link.read(runs[0].id), link.read(runs[-1].id, most=1)
    assert (first.out_start, first.out_total, first.out) == (2 * MIB, 2 * MIB, b"")
    assert first.ended is not None
    assert (last.out_start, last.out_total) == (0, 2 * MIB)


def test_a_ring_may_be_as_large_as_the_limits_allow(make_box: MakeBox) -> None:
    link = make_box().connect()
    run = ended(link, f"head -c {40 * MIB} /dev/zero", ring=64 * MIB)
    assert link.read(run.id, most=0).out_start == 0


def test_ended_commands_beyond_the_limit_block_no_new_command(
    make_box: MakeBox,
) -> None:
    link = make_box().connect()
    runs = [link.shell(":", IN_BACKGROUND) for _ in range(4)]
    for _ in range(WIRE["sizes"]["retained_max"] // 4 + 8):
        four = [link.shell(":", IN_BACKGROUND) for _ in range(4)]
        link.until(lambda four=four: all(run.pid or run.error for run in four))
        runs += four
    link.until(lambda: all(run.pid for run in runs))
    assert link.run("echo still").out == b"still\n"
    listed = link.list()
    while any(each.ended is None for each in listed):
        listed = link.list()  # the last ones still have to end
    assert len(listed) == WIRE["sizes"]["retained_max"]


def test_a_list_longer_than_a_frame_is_cut_not_overrun(make_box: MakeBox) -> None:
    link = make_box().connect()
    tag = b"t" * (300 << 10)
    for _ in range(6):
        run = link.shell("sleep 60", IN_BACKGROUND, tag=tag)
        link.until(lambda run=run: run.pid)
    for _ in range(6):
        ended(link, "true", tag=tag)
    link.send(frame(LIST))
    payload = link.wait_for(LIST_REPLY)[3]
    assert len(payload) <= WIRE["sizes"]["from_init_max"]
    assert len(link.list()) == 6
    link.ping()
