"""The log of a command's output: positions, segments, what a crash leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar.surfaces.http.log import Log


def _text(log: Log, position: int = 0, most: int = 1 << 30) -> bytes:
    return b"".join(piece.data for piece in log.read(position, most))


def test_both_streams_have_one_order(tmp_path: Path) -> None:
    log = Log(tmp_path / "c")
    for stream, data in ((0, b"one"), (1, b"two"), (0, b"three"), (0, b"four")):
        log.append(stream, data)
    pieces = log.read(0, 1 << 20)
    assert [(piece.at, piece.stream, piece.data) for piece in pieces] == [
        (0, "stdout", b"one"), (3, "stderr", b"two"), (6, "stdout", b"threefour"),
    ]  # fmt: skip
    assert log.received == (12, 3)


@pytest.mark.parametrize("position", [0, 1, 4, 6, 14, 15])
def test_any_position_can_be_read(tmp_path: Path, position: int) -> None:
    log = Log(tmp_path / "c")
    for stream, data in ((0, b"one"), (1, b"two"), (0, b"threefour")):
        log.append(stream, data)
    assert _text(log, position) == b"onetwothreefour"[position:]
    assert _text(log, position, 2) == b"onetwothreefour"[position : position + 2]


def test_the_newest_bytes_stay_and_the_oldest_go(tmp_path: Path) -> None:
    log, all_bytes = Log(tmp_path / "c", 1 << 20), b""
    for number in range(400):
        data = bytes([number % 251]) * 10_000
        all_bytes += data
        log.append(0, data)
        log.trim()
    assert log.end == len(all_bytes)
    assert 1 << 20 <= log.end - log.start < 2 << 20
    assert _text(log, log.start) == all_bytes[log.start :]


def test_what_nobody_was_sent_does_not_go(tmp_path: Path) -> None:
    log = Log(tmp_path / "c", 1 << 20)
    while not log.is_full:
        log.append(0, bytes(50_000))
    log.trim(0)
    assert log.start == 0
    assert log.is_full
    log.trim(log.end)
    assert log.start > 0
    assert not log.is_full


def test_a_new_log_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    first = Log(tmp_path / "c", 1 << 20)
    for number in range(300):
        first.append(number % 2, str(number).encode() * 2000)
    first.trim()
    second = Log(tmp_path / "c", 1 << 20)
    assert (second.start, second.end, second.received) == (
        first.start,
        first.end,
        first.received,
    )
    assert _text(second, second.start) == _text(first, first.start)
    second.append(0, b"more")
    assert _text(second, second.end - 4) == b"more"


def test_bytes_without_a_map_are_cut_off(tmp_path: Path) -> None:
    log = Log(tmp_path / "c")
    log.append(0, b"known")
    log.close()
    with open(next((tmp_path / "c").glob("*.out")), "ab") as file:
        file.write(b"written just before the crash")
    with open(next((tmp_path / "c").glob("*.map")), "ab") as file:
        file.write(b"half")
    again = Log(tmp_path / "c")
    assert again.received == (5, 0)
    again.append(1, b"next")
    assert _text(again) == b"knownnext"
