from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from belljar.audit import log
from belljar.errors import UsageError

logger = logging.getLogger("belljar.tools.execute_command")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    ours, tools = logging.getLogger("belljar"), logging.getLogger("belljar.tools")
    before = (ours.handlers[:], ours.level, ours.propagate, tools.level)
    yield
    ours.handlers[:], ours.propagate = before[0], before[2]
    ours.setLevel(before[1])
    tools.setLevel(before[3])


def speak() -> None:
    logger.debug("Process spawned (pid: %d)", 7)
    logger.info(
        "Executing command: %s",
        "TOKEN=hunter2 ls\nrm",
        extra={"session": "bj-1", "api_key": "hunter2"},
    )
    logger.error("Command execution error: %s", "ls")


def test_by_default_only_warnings_are_logged_and_nothing_of_tools(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BELLJAR_LOG", raising=False)
    log.configure()
    speak()
    logging.getLogger("belljar.audit").info("written")
    logging.getLogger("belljar.audit").warning("the trail cannot be written")
    assert capsys.readouterr().err == "belljar: the trail cannot be written\n"


def test_records_are_one_structured_line_each_and_masked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.configure("info")
    speak()
    executing, failed = capsys.readouterr().err.splitlines()
    assert executing.endswith(
        r'Executing command: TOKEN=*** ls\nrm session="bj-1" api_key="***"'
    )
    assert " info belljar.tools.execute_command: " in executing
    assert " error " in failed


def test_the_json_format_is_one_object_per_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_LOG", "debug,json")
    log.configure()
    speak()
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [record["level"] for record in records] == ["debug", "info", "error"]
    assert records[1]["session"] == "bj-1"
    assert "hunter2" not in str(records)


def test_the_start_and_end_of_a_command_are_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.configure("debug,json")
    log.log_record("start", {"session": "bj-1", "command": "TOKEN=hunter2 ls"})
    log.log_record(
        "end", {"session": "bj-1", "cause": "exited", "exit_code": 0, "duration": 0.1}
    )
    log.log_record(
        "end", {"session": "bj-1", "cause": "exited", "exit_code": 3, "duration": 0.1}
    )
    log.log_record(
        "end",
        {"session": "bj-1", "cause": "timeout", "exit_code": 124, "duration": 0.1},
    )
    log.log_record("session_close", {"session": "bj-1"})
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(record["level"], record["message"]) for record in told] == [
        ("info", "Executing command: TOKEN=*** ls"),
        ("info", "Command executed (exit: 0)"),
        ("info", "Command failed (exit: 3)"),
        ("error", "Command timeout exceeded"),
        ("debug", "session_close"),
    ]


def test_verbose_logs_from_level_info(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BELLJAR_LOG", raising=False)
    log.configure(verbose=True)
    speak()
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_an_exception_is_logged_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info,json")
    try:
        raise ValueError("PASSWORD=hunter2")
    except ValueError:
        logger.exception("failed")
    said = json.loads(capsys.readouterr().err)["error"]
    assert said.startswith("ValueError('PASSWORD=***")
    assert "hunter2" not in said


@pytest.mark.parametrize("wish", ["abc", "info,jason", "json", "info,json,more"])
def test_an_unknown_log_setting_is_refused(wish: str) -> None:
    with pytest.raises(UsageError, match=f"BELLJAR_LOG={wish}: write debug or info"):
        log.configure(wish)
