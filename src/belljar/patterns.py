"""Regular expressions that are compiled when they are first used.

A command needs few of the hundred that its modules define, and compiling one takes a tenth of a millisecond.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))


class _Pattern:
    def __init__(self, text: Any, flags: int) -> None:
        self._source = (text, flags)

    def __getattr__(self, name: str) -> Any:
        """Reached once for each method that is used."""
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)
        return found
