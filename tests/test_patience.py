"""One setting stretches every deadline of ours."""

import threading

import pytest

from belljar.errors import UsageError
from belljar.patience import VARIABLE, about_to_wait, heard_waiting, stretched


def test_deadlines_are_stretched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert stretched(10) == 10
    monkeypatch.setenv(VARIABLE, "2.5")
    assert stretched(10) == 25


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "much", "1e9"])
def test_what_is_no_factor_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(UsageError, match=VARIABLE):
        stretched(10)


def test_whoever_listens_hears_of_a_wait_in_the_same_thread() -> None:
    heard: list[str] = []
    about_to_wait()
    with heard_waiting(lambda: heard.append("waits")):
        other = threading.Thread(target=about_to_wait)
        other.start()
        other.join()
        assert heard == []
        about_to_wait()
    about_to_wait()
    assert heard == ["waits"]
