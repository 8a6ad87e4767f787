"""How the output that was kept is shown as text."""

import pytest
from tests.session.test_output import captured

from belljar.session.output import Capture
from belljar.session.result import Result, decode


def result(out: Capture, err: Capture | None = None) -> Result:
    return Result(
        cause="exited", exit_code=0, signal=None, duration=0.0, cpu_time=0.0, peak_memory=0, survivors_killed=0,
        started=0.0, ended=0.0, _captures=(out, err or Capture("stderr", 10)),
    )  # fmt: skip


def test_a_short_output_is_kept_whole() -> None:
    made = result(captured(100, b"one ", b"two"))
    assert (made.stdout, made.stdout_bytes, made.truncated) == (
        "one two",
        b"one two",
        False,
    )


def test_a_long_output_keeps_head_and_tail_and_says_what_is_missing() -> None:
    made = result(captured(8, b"abcdefgh", b"ijklmnop"))
    assert made.stdout == "abcd\n[... 8 bytes omitted ...]\nmnop"
    assert (
        made.truncated,
        made.bytes_produced,
        made.bytes_kept,
        made.bytes_omitted,
    ) == (True, 16, 8, 8)


def test_output_has_both_streams_in_the_order_they_arrived() -> None:
    out, err = Capture("stdout", 100), Capture("stderr", 100)
    out.add(1, b"a")
    err.add(2, b"B")
    out.add(3, b"c")
    assert result(out, err).output == "aBc"


def test_invalid_utf8_is_replaced_in_text_and_kept_in_bytes() -> None:
    made = result(captured(100, b"a\xff\xfeb"))
    assert (made.stdout, made.stdout_bytes) == ("a\ufffd\ufffdb", b"a\xff\xfeb")


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_cut_never_shows_half_a_character(cut: int) -> None:
    text = "x😀".encode()
    assert decode(text[:-cut], cut_end=True) == "x"
    assert decode("😀x".encode()[cut:], cut_start=True) == "x"


def test_a_result_is_one_json_object() -> None:
    found = result(captured(100, b"hi")).as_dict()
    assert found["stdout"] == "hi"
    assert found["cause"] == "exited"
    assert found["verdict"] is None
