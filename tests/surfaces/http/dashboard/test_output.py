"""Output as lines: cut, cleaned, numbered, found again by position; and that the scripts make the same lines."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from belljar.surfaces.http.dashboard import assets, output

HOSTILE = [
    b"plain",
    b"\x1b[1;31mred\x1b[0m",
    b"50%\r75%\r100%",
    b"windows\r",
    b"<b>&amp;</b>",
    "é\u202e".encode(),
    b"\xff\xfe bad",
    b"\x1b]0;title\x07",
    b"a" * 2001,
    b"\xc3\xa9" * 3000,
    b"",
]


def test_a_line_is_cut_and_says_how_much_there_is() -> None:
    assert (
        output.line_text(b"x" * 10_000_000)
        == "x" * 2000 + "… 9,998,000 more characters"
    )


def test_a_lone_carriage_return_restarts_the_line() -> None:
    assert output.line_text(b"50%\r75%\r100%") == "100%"
    assert output.line_text(b"kept\r") == "kept"


def test_the_last_two_thousand_lines_are_shown_and_the_earlier_counted() -> None:
    data = b"".join(b"line %d\n" % n for n in range(5000))
    page = output.page(data, 0)
    assert (len(page.lines), page.earlier, page.next_number, page.next_at) == (
        2000,
        3000,
        5001,
        len(data),
    )
    assert (page.lines[0].number, page.lines[0].text) == (3001, "line 3000")
    assert data[page.lines[0].at :].startswith(b"line 3000\n")
    assert data[page.earlier_at :].startswith(b"line 1000\n")


def test_a_position_marks_its_line() -> None:
    data = b"".join(b"line %d\n" % n for n in range(5000))
    page = output.page(data, 0, at=data.index(b"line 2500\n") + 3)
    assert [line.text for line in page.lines if line.here] == ["line 2500"]


def test_what_was_dropped_is_not_counted_as_the_beginning() -> None:
    page = output.page(b"b\nc\n", 100)
    assert [line.at for line in page.lines] == [100, 102]


def test_an_unfinished_line_is_left_to_the_stream() -> None:
    page = output.page(b"done\nhalf", 0)
    assert ([line.text for line in page.lines], page.next_number, page.next_at) == (
        ["done"],
        2,
        5,
    )


def test_the_script_makes_the_same_lines_however_they_come(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(1, 0)
    page = open_page(site.url, "/login", key=None)
    data = b"\n".join(HOSTILE) + b"\n"
    whole = [{"offset": 0, "base64": base64.b64encode(data).decode()}]
    parts = [
        {"offset": at, "base64": base64.b64encode(data[at : at + 7]).decode()}
        for at in range(0, 800, 7)
    ]
    again = [*parts, *whole]  # a snapshot after a lost connection: nothing is doubled
    run = """async ([url, pieces]) => { const { Log } = await import(url); const box = document.createElement('div');
      const log = new Log(box); for (const piece of pieces) log.add([piece]);
      return [...box.children].map(line => line.textContent) }"""
    expected = [output.line_text(raw) for _, raw in output.split(data, 0)]
    for pieces in (whole, again):
        assert page.evaluate(run, [assets.url("log.js"), pieces]) == expected
