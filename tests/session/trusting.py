"""Lets a session run any command without judging it, for tests of what comes after the policy."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from belljar import Session, Verdict


@contextmanager
def trusting(box: Session) -> Iterator[None]:
    harmless = box.policy.judge_plain("true")
    assert harmless is not None

    async def admit(command: Any, **_: Any) -> Verdict:
        return replace(harmless, canonical=command if isinstance(command, str) else " ".join(command))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box._judge, "admit", admit)
        yield
