"""Records behave like frozen dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from belljar.records import record


@record
class Point:
    """A place."""

    x: int
    y: int = 0
    names: list[str] = dataclasses.field(
        default_factory=list, repr=False, compare=False
    )


@record
class Named(Point):
    label: str = "here"


def test_a_record_is_made_like_a_dataclass() -> None:
    assert (Point(1).x, Point(1).y, Point(1).names) == (1, 0, [])
    assert Point(x=1, y=2) == Point(1, 2) != Point(2, 1)
    assert Point(1).names is not Point(1).names
    assert Named(1, label="there").label == "there"
    assert list(inspect.signature(Point).parameters) == ["x", "y", "names"]
    with pytest.raises(TypeError, match="'x'"):
        Point(y=1)  # type: ignore[call-arg]


def test_a_record_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert dataclasses.replace(point, y=5) == Point(1, 5)


def test_records_compare_by_class_and_by_the_fields_that_count() -> None:
    assert Point(1, names=["a"]) == Point(1, names=["b"])
    assert len({Point(1), Point(1), Point(2)}) == 2
    assert Point(1) != Named(1)
    assert repr(Named(1)) == "Named(x=1, y=0, label='here')"


def test_records_can_be_taken_apart_and_copied() -> None:
    point = Point(1, 2, ["a"])
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "names": ["a"]}
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_what_a_record_defines_itself_is_kept() -> None:
    @record
    class Own:
        size: int

        def __init__(self, size: int) -> None:
            object.__setattr__(self, "size", size * 2)

        def __repr__(self) -> str:
            return "own"

    assert (Own(2).size, repr(Own(2))) == (4, "own")


def test_the_constructor_is_compiled_at_the_first_use() -> None:
    @record
    class Rare:
        x: int
        y: int = 1
        names: list[str] = dataclasses.field(default_factory=list)

    assert not inspect.isfunction(vars(Rare)["__init__"])
    records = [Rare(0), Rare(x=0), Rare(0, y=1), Rare(y=1, x=0), Rare(0, 1, [])]
    assert inspect.isfunction(vars(Rare)["__init__"])
    assert all(vars(one) == {"x": 0, "y": 1, "names": []} for one in records)
    assert len({id(one.names) for one in records}) == len(records)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((), {"x": 1}, "missing 1 required positional argument: 'y'"),
        ((1, 2, 3, 4), {}, "takes from 3 to 4 positional arguments but 5 were given"),
        ((1, 2), {"other": 1}, "unexpected keyword argument 'other'"),
        ((1, 2), {"x": 1}, "multiple values for argument 'x'"),
    ],
)
def test_wrong_arguments_are_reported_as_by_python(
    args: tuple[int, ...], options: dict[str, int], message: str
) -> None:
    @record
    class Pair:
        x: int
        y: int
        z: int = 1

    with pytest.raises(TypeError, match=message):
        Pair(*args, **options)


def test_a_subclass_may_be_made_before_its_base() -> None:
    @record
    class Base:
        x: int = 1

    class Plain(Base):
        pass

    assert (Plain(2).x, Base(3).x) == (2, 3)
