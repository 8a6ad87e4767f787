"""Plain HTTP to an engine: every wrong answer becomes one clear error."""

from __future__ import annotations

import json

import pytest
from tests.engines.docker.conftest import said

from belljar.engines.docker.client import Answered, Client
from belljar.engines.docker.hosts import Endpoint


def test_the_engine_s_error_text_is_kept_without_the_seccomp_profile(
    odd_engine: tuple[str, list[bytes]],
) -> None:
    host, answers = odd_engine
    profile = json.dumps({"defaultAction": "x" * 5000})
    answers.append(
        said(
            500,
            {"message": f"opening seccomp={profile} failed:\n exec: permission denied"},
        )
    )
    with pytest.raises(
        Answered, match=r"starting: opening seccomp=… failed: exec: permission denied"
    ) as failed:
        Client(Endpoint(host)).ask("starting", "POST", "/x")
    assert failed.value.status == 500
