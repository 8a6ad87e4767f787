"""Plain data survives the way to JSON and back, and hostile JSON is a UsageError."""

from __future__ import annotations

import json
from typing import Any

import pytest

from belljar import (
    Change,
    Conflict,
    Ended,
    Output,
    PolicyDenied,
    Result,
    SandboxLost,
    Started,
    Verdict,
    codec,
    errors,
)
from belljar.errors import BelljarError, FileFailed, UsageError
from belljar.policy import Policy
from belljar.session.background_shell import Chunk
from belljar.session.files import FileInfo
from belljar.session.kept import Kept
from belljar.session.output import Capture
from belljar.staged.apply import Applied
from belljar.staged.area import Point
from belljar.staged.change import Entry

VERDICT = Policy.load("default").judge("sudo ls; rm -rf /")


def there_and_back(value: Any) -> Any:
    return codec.decode(type(value), json.loads(json.dumps(codec.encode(value))))


def result_of(out: bytes, err: bytes = b"", cap: int = 1 << 20, **more: Any) -> Result:
    captures = (Capture("stdout", cap), Capture("stderr", cap))
    captures[0].add(0, out)
    captures[1].add(1, err)
    return Result("exited", 3, 1.5, 10.0, 11.5, _captures=captures, **more)


VALUES = [
    VERDICT, Started(7), Output("stderr", b"\xff\0"), Ended(result_of(b"hi")), Entry("link", 0o777, target="x"),
    Change("a/b", "added", None, Entry("file", 0o644, 3), members=(Change("c", "deleted"),)),
    Kept("bj-0123456789ab", "base", "/srv", 1.0, 30.0, {"job": "17"}), Point("one", ["l1"], 2.0),
    FileInfo("odd\udcff", "file", 0o644, 3, 1 << 60), Applied(["a"], merged={"a": "digest"}),
    Chunk(b"\x80", b"", (1, 2), (3, 4), (0, 0), "running", None),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_record_comes_back_equal(value: Any) -> None:
    assert there_and_back(value) == value


@pytest.mark.parametrize(
    "result",
    [
        result_of(b"plain", b"errors", verdict=VERDICT, runs_later=(".git/hooks/x",), network=({"host": "a"},)),
        result_of(b"not \xff text", b"\0"), result_of(b"x" * 9000, b"y" * 9000, cap=4096), result_of(b""),
    ],
    ids=["text", "bytes", "truncated", "empty"],
)  # fmt: skip
def test_a_result_comes_back_with_its_bytes_and_texts(result: Result) -> None:
    again = there_and_back(result)
    assert again == result
    assert again.as_dict() == result.as_dict()
    assert (again.stdout_bytes, again.stderr_bytes) == (
        result.stdout_bytes,
        result.stderr_bytes,
    )
    assert (again.verdict, again.hints, again.hints_for("agent")) == (
        result.verdict,
        result.hints,
        result.hints,
    )


def test_what_as_dict_gives_can_be_read_too() -> None:
    result = result_of(b"hi", verdict=VERDICT)
    again = codec.decode(Result, json.loads(json.dumps(result.as_dict())))
    assert again.as_dict() == result.as_dict()


@pytest.mark.parametrize(
    "error",
    [PolicyDenied(VERDICT, declined=True), Conflict({"a": "changed"}), SandboxLost("gone"), FileFailed("x", errno=2),
     UsageError("wrong"), errors.WorkspaceError("not there"), errors.SessionNotFound("no")],
    ids=lambda error: error.code,
)  # fmt: skip
def test_an_error_comes_back_as_itself(error: BelljarError) -> None:
    again = codec.error_from(json.loads(json.dumps(codec.encode(error))))
    assert (type(again), str(again), again.as_dict()) == (
        type(error),
        str(error),
        error.as_dict(),
    )
    assert getattr(again, "errno", 0) == getattr(error, "errno", 0)


def test_every_code_has_its_class_and_an_unknown_one_is_an_error_too() -> None:
    for kind in vars(errors).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, BelljarError)
            and kind is not PolicyDenied
        ):
            assert (
                codec.error_from({"error": kind.code, "message": "m"}).code == kind.code
            )
    assert type(codec.error_from({"error": "new_in_9", "message": "m"})) is BelljarError


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Verdict, None), (Verdict, []), (Verdict, {"decision": "allow"}),
        (Verdict, {**codec.encode(VERDICT), "rules": 5}),
        (Output, {"stream": "stdin", "data": {"base64": ""}}), (Output, {"stream": "stdout", "data": "text"}),
        (Output, {"stream": "stdout", "data": {"base64": "***"}}), (Started, {"pid": True}), (Started, {"pid": "1"}),
        (Kept, {**codec.encode(VALUES[6]), "lease": float("nan")}),
        (Kept, {**codec.encode(VALUES[6]), "metadata": {"a": 1}}),
        (Result, 5), (Result, {"cause": "exited"}), (Result, {**codec.encode(result_of(b"")), "cause": "won"}),
        (Result, {**codec.encode(result_of(b"")), "stdout_base64": 5}), (Applied, {"paths": ["a"] * 100_001}),
    ],
)  # fmt: skip
def test_hostile_data_is_a_usage_error(kind: type, data: Any) -> None:
    with pytest.raises(UsageError):
        codec.decode(kind, data)


def test_unknown_fields_are_ignored() -> None:
    assert codec.decode(Started, {"pid": 7, "from_the_future": {}}) == Started(7)


def test_a_schema_is_made_from_a_type() -> None:
    made = codec.schema(
        codec.shape(
            "how it ended",
            (Result, ("cause", "stdout")),
            session=str,
            optional={"note": str},
        )
    )
    assert made["required"] == ["cause", "stdout", "session"]
    assert "timeout" in made["properties"]["cause"]["enum"]
