"""Each error has its code and the command line's exit status."""

import re

import pytest

from belljar import errors
from belljar.errors import BelljarError


def kinds(base: type[BelljarError] = BelljarError) -> list[type[BelljarError]]:
    return [base, *(each for sub in base.__subclasses__() for each in kinds(sub))]


def test_the_error_tree_in_the_docstring_is_complete() -> None:
    drawn = dict(re.findall(r"(\w+) +(\d+)(?: |$)", errors.__doc__ or "", re.MULTILINE))
    assert {name: str(getattr(errors, name).exit_status) for name in drawn} == drawn
    shown = {
        kind.__name__
        for kind in kinds()
        if "code" in vars(kind) and kind.__module__ == errors.__name__
    }
    assert shown == drawn.keys()


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in kinds() if "code" in vars(kind)]
    assert len(set(codes)) == len(codes)


def test_an_unknown_name_gets_a_suggestion() -> None:
    assert errors.suggestion("memroy", ["memory", "cpus"]) == "did you mean 'memory'?"
    assert errors.suggestion("x", ["b", "a"]) == "choose from a, b"


def test_a_conflict_names_every_path() -> None:
    with pytest.raises(errors.Conflict, match="a: changed; b: gone") as found:
        raise errors.Conflict({"b": "gone", "a": "changed"})
    assert found.value.as_dict()["paths"] == {"b": "gone", "a": "changed"}
