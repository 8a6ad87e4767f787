"""Ignores the settings of the user who runs the tests."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_CONFIG", os.devnull)
