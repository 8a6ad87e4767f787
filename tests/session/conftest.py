"""These tests use the workspace of the tools' tests."""

from tests.judging_off_the_loop import (
    _judging_stays_off_the_event_loop as _judging_stays_off_the_event_loop,
)
from tests.tools.conftest import place as place
