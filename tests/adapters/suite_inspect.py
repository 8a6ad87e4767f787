"""Inspect's own `self_check`, unmodified: as the sandbox's ordinary user, with root inside, and at a service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip(
    "inspect_ai",
    reason="needs inspect_ai: `make adapters-test` has an environment with it",
)

from inspect_ai.util import SandboxUserUnsupportedError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from belljar.adapters.inspect import BelljarConfig, BelljarSandboxEnvironment

NO_ROOT = {"test_exec_as_user": "there is no root in it: its own error for that"}
KNOWN = {
    "user": NO_ROOT,
    "far": {
        **NO_ROOT,
        "test_exec_large_command": "a request to the service may have 1 MiB, and so has this command",
    },
    "root": dict.fromkeys(
        (
            "test_read_file_not_allowed",
            "test_write_text_file_without_permissions",
            "test_write_binary_file_without_permissions",
        ),
        "root may read and write every file",
    ),
}


@pytest.fixture(params=["user", pytest.param("root", marks=pytest.mark.oci), "far"])
async def sandbox_env(
    request: pytest.FixtureRequest,
) -> AsyncIterator[BelljarSandboxEnvironment]:
    reason = KNOWN[request.param].get(request.node.originalname)
    if reason is not None:
        raises = (SandboxUserUnsupportedError, AssertionError)
        request.applymarker(
            pytest.mark.xfail(reason=reason, raises=raises, strict=True)
        )
    config = BelljarConfig()
    if request.param == "root":
        config = BelljarConfig(root=True, engine="oci")
    if request.param == "far":
        config = BelljarConfig(host=request.getfixturevalue("address"))
    environments = await BelljarSandboxEnvironment.sample_init("self_check", config, {})
    yield environments["default"].as_type(BelljarSandboxEnvironment)
    await BelljarSandboxEnvironment.sample_cleanup(
        "self_check", config, environments, False
    )
