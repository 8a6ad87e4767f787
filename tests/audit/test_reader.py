"""Reading the trail: after any history the chain verifies, and commands without an end are found."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belljar.audit import reader
from belljar.audit.writer import HEAD, NAME, Audit, seal, unseal
from belljar.errors import AuditError


def started(seq: int, digest: str, kind: str = "start") -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "session": "bj-1", "digest": digest}


def test_starts_without_an_end_are_found_in_order() -> None:
    history = [
        started(1, "a"),
        started(2, "b"),
        started(3, "a"),
        started(4, "a", "end"),
        started(5, "x", "end"),
    ]
    assert [each["seq"] for each in reader.unfinished(history)] == [2, 3]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError


FIELDS = st.dictionaries(
    st.sampled_from(["command", "env", "reason", "extra"]),
    st.one_of(
        st.text(),
        st.binary(),
        st.integers(),
        st.just(Unspeakable()),
        st.dictionaries(st.text(), st.text()),
    ),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["record", "note", "flush", "reopen", "torn", "behind"]), FIELDS
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_any_history_of_writers_and_their_deaths_verifies(
    steps: list[tuple[str, dict[str, Any]]],
) -> None:
    """A writer that dies leaves half a line, or a head file that is older than the trail."""
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        audit, expected = Audit(where, rotate_at=2000), 0
        for step, fields in steps:
            if step in ("record", "note"):
                getattr(audit, step)("start", session="bj-1", **fields)
                expected += 1
            elif step == "flush":
                audit.flush()
            elif step == "reopen":
                audit.close()
            else:
                audit.close()
                expected += _died(where, step, audit)
        audit.close()
        report = reader.verify(where)
        assert report.ok, report
        assert (
            sum(record["kind"] == "start" for record in reader.records(where))
            == expected
        )


def _died(where: Path, how: str, audit: Audit) -> int:
    """Let a writer die. Returns how many records it has written."""
    if not (where / NAME).exists():
        return 0
    if how == "torn":
        with (where / NAME).open("ab") as trail:
            trail.write(b'{"seq":7,"ti')
        audit.record("start", session="bj-1")
        audit.close()
        return 1
    head = (where / HEAD).read_bytes()
    size = (where / NAME).stat().st_size
    audit.record("start", session="bj-1")
    audit.close()
    if (where / NAME).stat().st_size > size:  # only if the trail was not rotated
        (where / HEAD).write_bytes(head)
    return 1


@pytest.mark.parametrize("name", ["audit.000001.jsonl", "audit.jsonl", "audit.head"])
@pytest.mark.parametrize("kind", ["fifo", "endless", "secret"])
def test_a_trail_of_another_user_s_stops_and_leads_root_nowhere(
    name: str, kind: str, tmp_path: Path
) -> None:
    Audit(tmp_path).record("start")
    (tmp_path / name).unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(
            "/dev/zero" if kind == "endless" else "/etc/shadow"
        )
    with pytest.raises(AuditError, match=f"{name} is no file of a trail"):
        reader.verify(tmp_path)
    if name != "audit.head":
        with pytest.raises(AuditError):
            list(reader.records(tmp_path))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"seq": "1", "kind": "start"},
        {"seq": 1, "kind": ["start"]},
        {"seq": 1, "kind": "start", "time": 5},
        {"seq": True, "kind": "start", "time": "now"},
    ],
)
def test_a_line_whose_hash_fits_and_that_is_no_record_is_an_altered_line(
    fields: dict[str, object], tmp_path: Path
) -> None:
    Audit(tmp_path).record("start")
    line, _ = seal({**fields, "prev": "0" * 64})
    with open(tmp_path / NAME, "ab") as trail:
        trail.write(line)
    Audit(tmp_path).record("end")
    report = reader.verify(tmp_path)
    assert report.fault in (None, "edited")
    deep = b'{"seq":1,"time":"","kind":"","prev":"","x":' + b"[" * 99999 + b"]" * 99999
    assert unseal(_with_hash(deep)) is None


def _with_hash(body: bytes) -> bytes:
    return (
        body + b',"hash":"' + hashlib.sha256(body + b"}").hexdigest().encode() + b'"}'
    )


def test_a_line_without_an_end_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_LONGEST", 1000)
    Audit(tmp_path).record("start")
    with open(tmp_path / NAME, "ab") as trail:
        trail.write(b"x" * 5000)
    assert max(len(line.raw) for line in reader.lines(tmp_path)) == 1000
    assert reader.verify(tmp_path).fault == "edited"
