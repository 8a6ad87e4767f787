"""What a session does with its policy, apart from asking for verdicts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from belljar.errors import PolicyError
from belljar.policy import Policy, examples
from belljar.session import judging


@pytest.fixture(autouse=True)
def _first_time_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    judging._shipped.cache_clear()


async def test_the_examples_of_our_policies_are_checked_once_and_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []
    check = examples.check_examples

    def watched(policy: Policy, *args: Any) -> None:
        threads.append(threading.current_thread())
        check(policy, *args)

    monkeypatch.setattr(examples, "check_examples", watched)
    policy = judging.load("permissive")
    assert (await judging.judged(policy, "echo hi")).decision == "allow"
    await judging.judged(policy, "echo hi")
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_policy_whose_examples_fail_judges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(policy: Policy, *args: Any) -> None:
        raise PolicyError("rule x does not match its example")

    monkeypatch.setattr(examples, "check_examples", broken)
    policy = judging.load("permissive")
    for _ in range(2):
        with pytest.raises(PolicyError):
            await judging.judged(policy, "echo hi")


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'for i in range(9): print(i)'",
        ["python3", "-c", "x = (1)"],
        "a " * 900,
    ],
)
async def test_a_program_within_a_command_is_read_off_the_event_loop(
    command: str | list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    decide = Policy._judged

    def watched(policy: Policy, *args: Any) -> Any:
        threads.append(threading.current_thread())
        return decide(policy, *args)

    policy = judging.load("permissive")
    await judging.judged(policy, "echo hi")
    monkeypatch.setattr(Policy, "_judged", watched)
    await judging.judged(policy, command)
    assert threads
    assert threading.main_thread() not in threads


async def test_a_repeated_command_is_judged_once_for_each_place_it_runs_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = []
    decide = Policy._judged

    def watched(policy: Policy, text: Any, *args: Any) -> Any:
        texts.append(text.text)
        return decide(policy, text, *args)

    policy = judging.load("permissive")
    await judging.judged(policy, "echo hi")
    monkeypatch.setattr(Policy, "_judged", watched)
    command = 'x=1; echo "$x"'
    first = await judging.judged(policy, command, cwd="/workspace", env={})
    assert await judging.judged(policy, command, cwd="/workspace", env={}) is first
    assert texts == [command]
    await judging.judged(policy, command, cwd="/workspace", env={"x": "2"})
    await judging.judged(policy, command, cwd="/tmp", env={})
    await judging.judged(policy, command, cwd="/workspace", staged=True)
    assert texts == [command] * 4


async def test_a_denial_is_not_remembered_since_the_parser_may_only_have_been_busy() -> (
    None
):
    policy = judging.load("permissive")
    assert (await judging.judged(policy, "echo 'unfinished")).decision == "deny"
    assert policy.recall("echo 'unfinished") is None
