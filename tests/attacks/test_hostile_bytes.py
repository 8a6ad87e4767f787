"""Whatever a sandbox, an image, a workspace or a server sends is read or refused: no parser breaks or leads out."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz import hostile


@pytest.mark.parametrize("name", hostile.PARSERS)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    parser = hostile.PARSERS[name]
    part = st.one_of(st.sampled_from(parser.words), st.binary(max_size=12))

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(part, max_size=12))
    def fed(parts: list[bytes]) -> None:
        hostile.feed(parser, parts)

    fed()
