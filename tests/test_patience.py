"""One setting scales every deadline in Belljar."""

import threading

import pytest

from belljar.errors import UsageError
from belljar.patience import VARIABLE, about_to_wait, on_wait, stretched


def test_deadlines_are_stretched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert stretched(10) == 10
    monkeypatch.setenv(VARIABLE, "2.5")
    assert stretched(10) == 25


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "much", "1e9"])
def test_an_invalid_factor_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(UsageError, match=VARIABLE):
        stretched(10)


def test_the_callback_is_called_for_waits_of_its_own_thread() -> None:
    calls: list[str] = []
    about_to_wait()
    with on_wait(lambda: calls.append("waits")):
        other = threading.Thread(target=about_to_wait)
        other.start()
        other.join()
        assert calls == []
        about_to_wait()
    about_to_wait()
    assert calls == ["waits"]
