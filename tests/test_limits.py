from collections.abc import Callable
from typing import Any

import pytest

from belljar import limits
from belljar.limits import Limits, LimitsError, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512m", 512 << 20),
        ("1g", 1 << 30),
        ("1.5 GiB", 3 << 29),
        ("64k", 65536),
        ("10", 10),
        (7, 7),
        ("2MB", 2 << 20),
        (" 1t ", 1 << 40),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["12 bananas", "", "m", "-1m", "1e3", None, True, "1..5g"]
)
def test_an_invalid_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "1k"},
        {"cpus": 0},
        {"cpus": "nan"},
        {"pids": 1},
        {"memry": "1g"},
        {"memory": "12 bananas"},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((LimitsError, TypeError)):
        Limits(**wrong)  # type: ignore[arg-type]


GIB = 1 << 30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def become(memory: int, cpus: int) -> None:
        monkeypatch.setattr(limits, "machine_memory", lambda: memory)
        monkeypatch.setattr(limits, "machine_cpus", lambda: cpus)

    return become


@pytest.mark.parametrize(
    ("has", "gives"),
    [
        (64 * GIB, 8 * GIB),
        (16 * GIB, 2 * GIB),
        (8 * GIB, 2 * GIB),
        (2 * GIB, GIB),
        (GIB, GIB // 2),
    ],
)
def test_the_default_memory_follows_the_machine(
    machine: Callable[[int, int], None], has: int, gives: int
) -> None:
    machine(has, 4)
    assert Limits().memory == gives


def test_the_defaults_of_an_ordinary_machine_are_as_documented(
    machine: Callable[[int, int], None],
) -> None:
    machine(8 * GIB, 4)
    found = Limits()
    assert (found.memory, found.cpus, found.pids) == (2 * GIB, 4.0, 1024)
    assert (found.tmp, found.home, found.shm) == (GIB // 2, GIB // 2, GIB // 4)
    assert found.fsize >= 8 * GIB


def test_memory_and_processors_of_this_machine_are_read() -> None:
    assert limits.machine_memory() > 64 << 20
    assert limits.machine_cpus() >= 1


def test_scratch_grows_with_the_memory_that_is_asked_for() -> None:
    found = Limits(memory="8g")
    assert (found.tmp, found.home, found.shm) == (2 * GIB, 2 * GIB, GIB)


def test_an_explicit_limit_is_kept_and_the_defaults_shrink() -> None:
    found = Limits(memory="2g", tmp="1g")
    assert found.tmp == GIB
    assert found.home == GIB // 4
    assert Limits(memory="2g", tmp=found.tmp, home=found.home, shm=found.shm) == found


@pytest.mark.parametrize(
    "asked",
    [
        {"tmp": "1g"},
        {"home": "1g"},
        {"shm": "60m"},
        {"tmp": "30m", "home": "30m"},
        {"inodes": 1_000_000},
    ],
)
def test_an_explicit_limit_that_does_not_fit_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(LimitsError, match="memory"):
        Limits(memory="64m", **asked)


@pytest.mark.parametrize("memory", ["16m", "64m", "1g", "100g"])
def test_the_defaults_fit_into_any_memory(memory: str) -> None:
    found = Limits(memory=memory)
    assert found.tmp + found.home + found.shm <= found.memory * 5 // 8
    assert Limits(**found.as_dict()) == found
