"""Replies are matched to their requests, and nothing else is accepted as a reply."""

import pytest

from belljar.errors import ShellNotFound, UsageError
from belljar.link.frames import FrameError, From
from belljar.link.questions import TAGS, Questions


async def test_answers_of_one_kind_come_in_the_order_of_their_questions() -> None:
    questions = Questions()
    first, second = questions.ask(From.PONG), questions.ask(From.PONG)
    questions.answer(1, From.PONG)
    assert first.result() == 1
    assert not second.done()


async def test_an_answer_needs_a_question_of_its_kind_command_and_tag() -> None:
    questions = Questions()
    questions.ask(From.READ_REPLY, 7, 1, most=10)
    for kind, id, tag, size in ((From.PONG, 0, 0, 0), (From.READ_REPLY, 8, 1, 0), (From.READ_REPLY, 7, 2, 0),
                                (From.READ_REPLY, 7, 1, 11)):  # fmt: skip
        with pytest.raises(FrameError, match="an answer without a question"):
            questions.answer(None, kind, id, tag, size=size)


async def test_only_so_many_reads_of_one_command_wait_at_once() -> None:
    questions = Questions()
    for tag in range(TAGS):
        assert questions.free_tag(From.READ_REPLY, 7) == tag
        questions.ask(From.READ_REPLY, 7, tag)
    with pytest.raises(UsageError, match="await some of them first"):
        questions.free_tag(From.READ_REPLY, 7)


async def test_a_command_that_is_gone_fails_its_own_questions_only() -> None:
    questions = Questions()
    asked, other, ping = (
        questions.ask(From.STATE_REPLY, 7),
        questions.ask(From.STATE_REPLY, 9),
        questions.ask(From.PONG),
    )
    assert questions.fail(ShellNotFound("gone"), 7)
    assert isinstance(asked.exception(), ShellNotFound)
    assert not questions.fail(ShellNotFound("gone"), 0), "0 is no command"
    assert not other.done()
    assert not ping.done()


async def test_a_question_is_overdue_after_its_own_wait_and_the_time_that_an_answer_may_take() -> (
    None
):
    questions = Questions()
    questions.ask(From.READ_REPLY, 7, wait=30.0)
    assert not questions.overdue(80, 60)
    questions.ask(From.PONG)
    assert questions.overdue(11, 60), "the read"
    questions.answer(None, From.READ_REPLY, 7)
    assert not questions.overdue(49, 60)
    assert questions.overdue(1, 60), "the other"
