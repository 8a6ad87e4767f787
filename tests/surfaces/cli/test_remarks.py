"""Remarks after a command's output."""

from argparse import Namespace

from belljar.session.result import Result
from belljar.surfaces.cli.remarks import remarks


def _result(**more: object) -> Result:
    return Result("exited", 0, 0.1, 0.0, 0.1, **more)  # type: ignore[arg-type]


def test_a_listening_server_is_mentioned_with_the_command_that_opens_it() -> None:
    args = Namespace(session=None, timeout=None, report=None)
    assert remarks(_result(listening=(8000,)), args) == [
        "a server listens on port 8000: :open 8000 opens it here"
    ]
    args = Namespace(session="work", timeout=None, report=None)
    assert remarks(_result(listening=(8000,)), args) == [
        "a server listens on port 8000: `belljar forward work 8000` opens it here"
    ]


def test_an_ordinary_end_has_no_remark() -> None:
    assert remarks(_result(), Namespace(session=None, timeout=None, report=None)) == []
