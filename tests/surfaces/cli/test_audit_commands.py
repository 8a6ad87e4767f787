"""`belljar audit show|verify`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.surfaces.invoking import start

from belljar.audit import reader
from belljar.audit.writer import NAME, Audit
from belljar.surfaces.cli.main import main


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BELLJAR_STATE", str(tmp_path))
    writer = Audit(tmp_path)
    writer.record("session_open", session="bj-1", image="base")
    writer.record("start", session="bj-1", command="echo one\x1b[2J\nback")
    writer.record("start", session="bj-2", command="echo two")
    writer.close()
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert main(["audit", "show", *args]) == 0
    return capsys.readouterr().out.splitlines()


def test_records_are_shown_one_per_line_without_controls(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys)
    assert len(lines) == 3
    assert "session_open" in lines[0]
    assert "\x1b" not in lines[1]
    assert "echo one" in lines[1]


def test_records_can_be_filtered(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(shown(capsys, "--session", "bj-1")) == 2
    assert len(shown(capsys, "--kind", "start")) == 2
    assert len(shown(capsys, "--kind", "start", "--session", "bj-2")) == 1
    assert len(shown(capsys, "--since", "1h")) == 3
    assert shown(capsys, "--since", "2999-01-01T00:00") == []
    assert shown(capsys, "--kind", "apply") == []
    assert main(["audit", "show", "--session", "nosuch"]) == 2
    assert "no session nosuch" in capsys.readouterr().err
    assert main(["audit", "show", "--kind", "strat"]) == 2
    assert "did you mean 'start'?" in capsys.readouterr().err


def test_json_is_one_document(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "show", "--json", "--kind", "start"]) == 0
    assert [record["seq"] for record in json.loads(capsys.readouterr().out)] == [2, 3]


def test_following_shows_what_is_written_from_now_on(where: Path) -> None:
    with start("audit", "show", "--follow", "--json") as process:
        assert process.stdout
        seen = [json.loads(process.stdout.readline())["seq"] for _ in range(3)]
        writer = Audit(where, rotate_at=1)
        for _ in range(2):
            writer.record("end", session="bj-1")
        writer.close()
        seen += [json.loads(process.stdout.readline())["seq"] for _ in range(2)]
        process.terminate()
    assert seen == [1, 2, 3, 4, 5]


def test_an_intact_trail_is_verified(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "verify"]) == 0
    assert "3 records, the chain is intact" in capsys.readouterr().out
    assert main(["audit", "verify", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["records"]) == (True, 3)


def test_the_first_bad_line_is_named(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = where / NAME
    trail.write_bytes(trail.read_bytes().replace(b"echo two", b"echo 222"))
    assert main(["audit", "verify"]) == 1
    assert capsys.readouterr().out.startswith(f"{trail}:3: edited: ")


def test_a_torn_line_is_reported_as_a_note(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(where / NAME, "ab") as file:
        file.write(b'{"seq"')
    assert main(["audit", "verify"]) == 0
    assert "note:" in capsys.readouterr().out


def test_a_missing_trail_counts_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_STATE", str(tmp_path / "none"))
    assert main(["audit", "show"]) == 0
    assert main(["audit", "verify"]) == 0


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_another_user_s_trail_is_a_clear_error(
    where: Path,
    verb: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(where))

    monkeypatch.setattr(reader, "records", refused)
    monkeypatch.setattr(reader, "verify", refused)
    assert main(["audit", verb]) == 2
    said = capsys.readouterr().err
    assert f"{where} can be read by its owner only" in said
    assert "Errno" not in said
