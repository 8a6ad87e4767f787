"""The settings of whoever runs the tests do not count."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_CONFIG", os.devnull)
