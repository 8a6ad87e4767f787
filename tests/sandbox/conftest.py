"""These tests use the workspace of the tools' tests."""

from tests.tools.conftest import place as place
