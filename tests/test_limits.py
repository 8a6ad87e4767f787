import pytest

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


@pytest.mark.parametrize("text", ["12 bananas", "", "m", "-1m", "1e3", None, True, "1..5g"])
def test_what_is_not_a_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    "wrong", [{"memory": "1k"}, {"cpus": 0}, {"cpus": "nan"}, {"pids": 1}, {"memry": "1g"}, {"memory": "12 bananas"}]
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((LimitsError, TypeError)):
        Limits(**wrong)  # type: ignore[arg-type]


def test_limits_have_the_documented_defaults() -> None:
    limits = Limits()
    assert (limits.memory, limits.cpus, limits.pids) == (512 << 20, 1.0, 256)


def test_files_in_memory_leave_room_for_the_next_command() -> None:
    small = Limits(memory="64m", tmp="1g", home="1g", shm="1g", inodes=1_000_000)
    assert (small.tmp, small.home, small.shm) == (16 << 20, 8 << 20, 8 << 20)
    assert small.inodes == 8192
