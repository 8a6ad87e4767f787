"""Inspect's own `self_check`, unmodified: as the sandbox's ordinary user, and with root inside."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("inspect_ai", reason="needs inspect_ai: `make adapters-test` has an environment with it")

from inspect_ai.util import SandboxUserUnsupportedError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from belljar.adapters.inspect import BelljarConfig, BelljarSandboxEnvironment

KNOWN = {
    "user": {"test_exec_as_user": "there is no root in it: its own error for that"},
    "root": dict.fromkeys(
        (
            "test_read_file_not_allowed",
            "test_write_text_file_without_permissions",
            "test_write_binary_file_without_permissions",
        ),
        "root may read and write every file",
    ),
}


@pytest.fixture(params=["user", pytest.param("root", marks=pytest.mark.oci)])
async def sandbox_env(request: pytest.FixtureRequest) -> AsyncIterator[BelljarSandboxEnvironment]:
    reason = KNOWN[request.param].get(request.node.originalname)
    if reason is not None:
        raises = (SandboxUserUnsupportedError, AssertionError)
        request.applymarker(pytest.mark.xfail(reason=reason, raises=raises, strict=True))
    config = BelljarConfig(**({"root": True, "engine": "oci"} if request.param == "root" else {}))
    environments = await BelljarSandboxEnvironment.sample_init("self_check", config, {})
    yield environments["default"].as_type(BelljarSandboxEnvironment)
    await BelljarSandboxEnvironment.sample_cleanup("self_check", config, environments, False)
