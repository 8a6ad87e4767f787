from __future__ import annotations

import json
import multiprocessing
import os
import pwd
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

import belljar
from belljar.audit import masking, reader
from belljar.audit import writer as audit
from belljar.audit.writer import HEAD, NAME, Audit, Head
from belljar.errors import AuditError
from belljar.host import Host


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "state"


def fill(where: Path, count: int = 5, **options: int) -> Audit:
    writer = Audit(where, **options)
    for number in range(count):
        writer.record("start", session="bj-1", command=f"echo {number}")
    writer.close()
    return writer


def file_lines(where: Path) -> list[bytes]:
    return (where / NAME).read_bytes().splitlines(keepends=True)


def rewrite(where: Path, lines: list[bytes]) -> None:
    (where / NAME).write_bytes(b"".join(lines))


def test_records_are_numbered_chained_and_verified(where: Path) -> None:
    fill(where)
    records = list(reader.records(where))
    assert [r["seq"] for r in records] == [1, 2, 3, 4, 5]
    assert [r["prev"] for r in records[1:]] == [r["hash"] for r in records[:-1]]
    report = reader.verify(where)
    assert report.ok
    assert (report.records, report.seq, report.hash) == (5, 5, records[-1]["hash"])


def test_each_record_names_who_runs_belljar(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(where, 1)
    mine = json.loads(file_lines(where)[0])
    assert (mine["uid"], mine["user"]) == (
        os.getuid(),
        pwd.getpwuid(os.getuid()).pw_name,
    )
    monkeypatch.setattr(os, "getuid", lambda: 987_654)  # an account that nobody has
    fill(where, 1)
    assert (
        json.loads(file_lines(where)[-1])["uid"],
        json.loads(file_lines(where)[-1])["user"],
    ) == (987_654, "")


def test_only_the_owner_can_read_the_trail(where: Path) -> None:
    fill(where)
    assert {stat.S_IMODE((where / name).stat().st_mode) for name in (NAME, HEAD)} == {
        0o600
    }
    assert stat.S_IMODE(where.stat().st_mode) == 0o700


def test_an_edited_line_is_named(where: Path) -> None:
    fill(where)
    lines = file_lines(where)
    lines[2] = lines[2].replace(b"echo 2", b"echo 9")
    rewrite(where, lines)
    report = reader.verify(where)
    assert (report.fault, report.at) == ("edited", f"{where / NAME}:3")


def test_an_edited_line_with_a_fresh_hash_is_named(where: Path) -> None:
    fill(where)
    lines = file_lines(where)
    record = json.loads(lines[2])
    del record["hash"]
    lines[2] = audit.seal(record | {"command": "echo harmless"})[0]
    rewrite(where, lines)
    report = reader.verify(where)
    assert (report.fault, report.at) == ("edited", f"{where / NAME}:3")


@pytest.mark.parametrize(("gone", "line"), [(0, 1), (2, 3)])
def test_a_missing_line_is_named(where: Path, gone: int, line: int) -> None:
    fill(where)
    lines = file_lines(where)
    del lines[gone]
    rewrite(where, lines)
    report = reader.verify(where)
    assert (report.fault, report.at) == ("missing", f"{where / NAME}:{line}")


def test_a_reordered_line_is_named(where: Path) -> None:
    fill(where)
    lines = file_lines(where)
    lines[1], lines[2] = lines[2], lines[1]
    rewrite(where, lines)
    report = reader.verify(where)
    assert (report.fault, report.at) == ("reordered", f"{where / NAME}:2")


def test_a_repeated_line_is_named(where: Path) -> None:
    fill(where)
    lines = file_lines(where)
    rewrite(where, [*lines[:3], lines[2], *lines[3:]])
    report = reader.verify(where)
    assert (report.fault, report.at) == ("reordered", f"{where / NAME}:4")


def test_removed_last_lines_are_reported_also_after_new_records(where: Path) -> None:
    fill(where)
    rewrite(where, file_lines(where)[:3])
    report = reader.verify(where)
    assert (report.fault, report.at) == ("truncated", f"{where / NAME}:3")
    fill(where, 1)
    report = reader.verify(where)
    assert (report.fault, report.at) == ("missing", f"{where / NAME}:4")


def test_a_rewritten_trail_does_not_match_its_head(where: Path, tmp_path: Path) -> None:
    fill(where)
    fill(tmp_path / "other")
    rewrite(where, file_lines(tmp_path / "other"))
    assert reader.verify(where).fault == "edited"


@pytest.mark.parametrize("damage", [b"", None])
def test_a_lost_head_is_reported_for_good_and_the_chain_continues(
    where: Path, damage: bytes | None
) -> None:
    fill(where)
    rewrite(where, file_lines(where)[:3])
    (where / HEAD).unlink() if damage is None else (where / HEAD).write_bytes(damage)
    assert reader.verify(where).fault == "missing"
    fill(where, 2)
    report = reader.verify(where)
    assert (report.fault, report.at) == ("missing", f"{where / NAME}:4")
    assert [(r["seq"], r["kind"]) for r in reader.records(where)][3:] == [
        (4, "head_lost"),
        (5, "start"),
        (6, "start"),
    ]


def test_a_first_writer_killed_before_the_head_is_updated_loses_no_record(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            Head, "line", dying := Mock(side_effect=[Head().line(), KeyboardInterrupt])
        )
        with pytest.raises(KeyboardInterrupt):
            Audit(where).record("start")
    assert dying.call_count == 2
    fill(where, 1)
    assert reader.verify(where).ok
    assert [r["seq"] for r in reader.records(where)] == [1, 2]


def test_garbage_with_a_newline_counts_as_an_edit(where: Path) -> None:
    fill(where)
    with open(where / NAME, "ab") as file:
        file.write(b"garbage\n")
    assert reader.verify(where).fault == "edited"
    fill(where, 1)
    report = reader.verify(where)
    assert (report.fault, report.at) == ("edited", f"{where / NAME}:6")


def test_an_empty_trail_holds(where: Path) -> None:
    assert reader.verify(where).ok


def test_a_half_written_line_is_reported_as_torn_and_not_as_an_edit(
    where: Path,
) -> None:
    fill(where)
    with open(where / NAME, "ab") as file:
        file.write(b'{"seq":6,"time":"2026')
    report = reader.verify(where)
    assert report.ok
    assert report.torn
    fill(where, 1)
    report = reader.verify(where)
    assert report.ok
    assert [entry.split(": ")[0] for entry in report.torn] == [f"{where / NAME}:6"]
    assert [r["kind"] for r in reader.records(where)][-2:] == ["torn", "start"]


def test_records_of_a_writer_killed_before_the_head_was_updated_are_kept(
    where: Path,
) -> None:
    fill(where, 4)
    head = (where / HEAD).read_bytes()
    fill(where, 2)
    (where / HEAD).write_bytes(head)
    fill(where, 1)
    assert reader.verify(where).ok
    assert [r["seq"] for r in reader.records(where)] == [1, 2, 3, 4, 5, 6, 7]


def test_rotation_keeps_the_chain_across_files(where: Path) -> None:
    fill(where, 40, rotate_at=1000)
    assert len(audit.rotated_files(where)) > 3
    report = reader.verify(where)
    assert report.ok
    assert report.records == 40


def test_old_files_are_deleted_and_the_rest_still_verifies(where: Path) -> None:
    fill(where, 60, rotate_at=1000, keep=2)
    assert len(audit.rotated_files(where)) == 2
    report = reader.verify(where)
    assert report.ok
    assert report.records < 60
    audit.rotated_files(where)[0].unlink()
    assert reader.verify(where).fault == "missing"


def test_a_directory_removed_under_a_writer_is_made_anew(where: Path) -> None:
    writer = Audit(where)
    writer.record("start")
    for path in list(where.iterdir()):
        path.unlink()
    writer.record("end")
    assert [r["kind"] for r in reader.records(where)] == ["end"]
    assert reader.verify(where).ok
    writer.close()


def _write_many(where: Path, count: int) -> None:
    fill(where, count, rotate_at=20_000)


def test_writers_in_threads_and_processes_make_one_chain(where: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(where, 150)) for _ in range(3)]
    shared = Audit(where, rotate_at=20_000)
    work = lambda: [shared.record("start") for _ in range(100)]  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in (*writers, *threads):
        each.start()
    for each in (*writers, *threads):
        each.join()
    shared.close()
    report = reader.verify(where)
    assert report.ok
    assert report.records == 750


def test_records_queued_by_threads_during_a_write_are_not_lost(where: Path) -> None:
    shared, before = Audit(where), sys.getswitchinterval()
    work = lambda: [(shared.note("start", n=n), shared.flush()) for n in range(300)]  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    shared.close()
    assert (reader.verify(where).ok, len(list(reader.records(where)))) == (True, 1200)


def test_queued_records_are_written_without_a_flush(where: Path) -> None:
    writer = Audit(where)
    for seq in (1, 2):
        writer.note("start")
        until = time.monotonic() + 120
        while len(list(reader.records(where))) < seq:
            assert time.monotonic() < until
            time.sleep(0.005)
    writer.close()


def test_a_process_that_ends_writes_its_queued_records(where: Path) -> None:
    program = "import pathlib, sys; from belljar.audit.writer import Audit; Audit(pathlib.Path(sys.argv[1])).note('start')"
    subprocess.run([sys.executable, "-c", program, str(where)], check=True)
    assert [record["kind"] for record in reader.records(where)] == ["start"]


def test_a_fork_while_the_trail_is_being_written_does_not_stop_the_child(
    where: Path,
) -> None:
    writer = Audit(where)
    with writer._thread_lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            writer.record("start")
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert reader.verify(where).records == 1


def test_records_queued_before_a_fork_are_written_by_the_parent_alone(
    where: Path,
) -> None:
    writer = Audit(where)
    writer.note("start")
    pid = os.fork()
    if pid == 0:
        writer.record("end")
        os._exit(0)
    os.waitpid(pid, 0)
    writer.flush()
    assert sorted(record["kind"] for record in reader.records(where)) == [
        "end",
        "start",
    ]


def test_a_forked_child_and_its_parent_make_one_chain(where: Path) -> None:
    writer = Audit(where)
    writer.record("start")
    pid = os.fork()
    if pid == 0:
        for _ in range(200):
            writer.record("start")
        os._exit(0)
    for _ in range(200):
        writer.record("start")
    os.waitpid(pid, 0)
    writer.close()
    assert reader.verify(where).records == 401


def _write_for_ever(where: Path, ready: object) -> None:
    writer = Audit(where, rotate_at=50_000)
    while True:
        writer.record("start", command="x" * 5000)
        ready.set()  # type: ignore[attr-defined]


def test_killed_writers_leave_a_trail_that_verifies(where: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = [context.Event() for _ in range(2)]
    writers = [
        context.Process(target=_write_for_ever, args=(where, event)) for event in ready
    ]
    for writer in writers:
        writer.start()
    for writer, event in zip(writers, ready, strict=True):
        assert event.wait(60)
        assert writer.pid
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    fill(where, 1)
    assert reader.verify(where).ok


@pytest.mark.parametrize("next_writer", ["another", "one that had the file open"])
def test_a_rotation_that_was_killed_loses_no_record(
    where: Path, monkeypatch: pytest.MonkeyPatch, next_writer: str
) -> None:
    going_on = Audit(where, rotate_at=1000)
    if next_writer != "another":
        going_on.record("start")
    victim = Audit(where, rotate_at=1000)
    with monkeypatch.context() as patched:

        def renamed(*names: object) -> None:
            os.replace(*names)
            raise KeyboardInterrupt

        patched.setattr(os, "rename", renamed)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            for _ in range(20):
                victim.record("start")
    before = len(list(reader.records(where)))
    for _ in range(40):
        going_on.record("start")
    assert len(list(reader.records(where))) == before + 40
    assert reader.verify(where).ok


def test_secrets_are_masked(where: Path) -> None:
    writer = Audit(where)
    env = {"API_TOKEN": "abcdef", "PATH": "/bin", "DB": "postgres://u:hunter2@db/x"}
    writer.record("start", command="PASSWORD=hunter2 psql", env=env)
    text = (where / NAME).read_text()
    assert "hunter2" not in text
    assert "abcdef" not in text
    assert '"PATH":"/bin"' in text
    writer.close()


def test_any_text_can_be_recorded(where: Path) -> None:
    writer = Audit(where)
    odd = "\ud800\x00\n\r\u2028 ü"
    writer.record(
        "start", command=odd, path=Path("/x"), long="y" * 200_000, nothing=None
    )
    writer.close()
    (record,) = reader.records(where)
    assert record["command"] == odd
    assert "left out" in record["long"]
    assert "nothing" not in record
    assert reader.verify(where).ok


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_unwritable_field_loses_neither_its_record_nor_others(where: Path) -> None:
    writer = Audit(where)
    writer.note("start", session="bj-1", digest="d", command="first")
    writer.note("start", session="bj-2", digest="e", command=Unspeakable())
    writer.note("end", session="bj-2", digest="e", cause="exited")
    writer.close()
    found = list(reader.records(where))
    assert [(r["kind"], r["session"]) for r in found] == [
        ("start", "bj-1"),
        ("start", "bj-2"),
        ("end", "bj-2"),
    ]
    assert found[1]["unwritable"] == "RuntimeError"
    assert reader.verify(where).ok


def test_the_writing_thread_survives_an_error(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, failed, wrote = Audit(where), threading.Event(), threading.Event()
    append = Audit._append

    def once(self: Audit, notes: Sequence[audit.Note]) -> None:
        if not failed.is_set():
            failed.set()
            raise MemoryError
        append(self, notes)
        wrote.set()

    monkeypatch.setattr(Audit, "_append", once)
    writer.note("start", session="lost")
    assert failed.wait(120)
    writer.note("end", session="kept")
    assert wrote.wait(120), "the thread is still there"
    writer.close()
    assert [r["session"] for r in reader.records(where)] == ["kept"]


def test_long_texts_are_cut_before_they_are_masked(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masking blocks the interpreter for a microsecond per character: a megabyte took seconds."""
    lengths = []
    monkeypatch.setattr(
        masking, "text", lambda value: lengths.append(len(value)) or value
    )
    long = "key=value " * 100_000
    writer = Audit(where)
    verdict = belljar.Policy.load("default").judge("echo " + "x" * 60_000)
    env = {f"VARIABLE_{n}": long for n in range(3)} | {
        f"V{n}": "x" for n in range(5000)
    }
    writer.record(
        "verdict", verdict=verdict, other=[long] * 3000, raw=long.encode(), cwd=long
    )
    writer.record("start", command=long, env=env)
    writer.close()
    assert lengths
    assert max(lengths) <= masking.TEXT + 60
    assert len(lengths) < 1000
    assert (where / NAME).stat().st_size < 6 << 20


def test_a_secret_split_by_a_cut_is_not_half_written(where: Path) -> None:
    writer = Audit(where)
    token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    for at in range(masking.TEXT - len(token), masking.TEXT + 1, 3):
        writer.record("start", command="x" * (at - 1) + " " + token + " y" * 9000)
        writer.record(
            "start", command="x" * (at - 30) + " TOKEN=" + token + " y" * 9000
        )
    writer.close()
    assert "ghp_" not in (where / NAME).read_text()


def test_an_unwritable_trail_is_a_warning_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    writer = Audit(tmp_path / "file" / "state")
    writer.record("start")
    writer.record("end")
    assert len([r for r in caplog.records if r.name == "belljar.audit"]) == 1


def test_a_required_trail_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="cannot be written"):
        Audit(tmp_path / "file" / "state", required=True).record("verdict")


def test_environment_variables_choose_the_trail_s_directory_and_turn_it_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BELLJAR_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert Host().audit.where == tmp_path / "belljar"
    monkeypatch.setenv("BELLJAR_STATE", str(tmp_path / "own"))
    host = Host()
    assert host.audit.where == tmp_path / "own"
    assert host.audit is host.audit
    monkeypatch.setenv("BELLJAR_AUDIT", "off")
    host.audit.record("start")
    assert not list((tmp_path / "own").iterdir())


def test_a_file_is_rotated_by_age_and_the_chain_goes_on(tmp_path: Path) -> None:
    Audit(tmp_path, rotate_after=3600).record("start")
    young = Audit(tmp_path, rotate_after=3600)
    young.record("end")
    assert audit.rotated_files(tmp_path) == []
    Audit(tmp_path, rotate_after=1e-6).record("start")
    Audit(tmp_path, rotate_after=1e-6).record("end")
    assert len(audit.rotated_files(tmp_path)) == 2
    young.record("start")
    report = reader.verify(tmp_path)
    assert (report.ok, report.records, report.seq) == (True, 5, 5)
    audit.rotated_files(tmp_path)[0].unlink()
    assert reader.verify(tmp_path).fault == "missing"


def test_a_rotated_file_that_was_cut_is_told(tmp_path: Path) -> None:
    for _ in range(3):
        Audit(tmp_path, rotate_at=1).record("start")
    first = audit.rotated_files(tmp_path)[1]
    first.write_bytes(b"")
    report = reader.verify(tmp_path)
    assert (report.ok, report.fault) == (False, "missing")
