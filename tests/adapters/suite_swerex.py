"""SWE-ReX's own test_execution.py, unmodified, from its source distribution.

Its tests use one path on both sides of the runtime: here the test's directory is the sandbox's workspace, and a link in
the sandbox gives it the same name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip(
    "swerex", reason="needs swerex: `make adapters-test` has an environment with it"
)

from swerex.runtime.abstract import (
    BashAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
)

from belljar.adapters.swerex import BelljarDeployment, BelljarRuntime

(TESTS,) = Path(sys.prefix, "sdist").glob("swe_rex-*/tests")


class _Action(BashAction):
    timeout: float | None = 5


class _Command(Command):
    timeout: float | None = 5


def _package() -> None:
    """The folder of its tests as a package, with these two in place of its own conftest, which starts a server."""
    package, conftest = ModuleType("swerex_tests"), ModuleType("swerex_tests.conftest")
    package.__path__ = [str(TESTS)]
    conftest.__dict__.update(_Action=_Action, _Command=_Command)
    sys.modules.update({package.__name__: package, conftest.__name__: conftest})


_package()
_tests = importlib.import_module("swerex_tests.test_execution")
globals().update(
    {name: test for name, test in vars(_tests).items() if name.startswith("test_")}
)


HAS_NO_JOBS = "at a service each command has a bash of its own: none is left to tell of a job that was killed"
HAS_FILES_OF_ITS_OWN = "this test looks at the file on its own machine"
FAR = {
    "test_read_write_file": HAS_FILES_OF_ITS_OWN,
    "test_read_large_file": HAS_FILES_OF_ITS_OWN,
    "test_interrupt_pager": HAS_NO_JOBS,
}


@pytest.fixture(params=["near", "far"])
async def remote_runtime(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[BelljarRuntime]:
    if request.param == "far":
        if request.node.originalname in FAR:
            request.applymarker(
                pytest.mark.xfail(reason=FAR[request.node.originalname], strict=True)
            )
        deployment = BelljarDeployment(host=request.getfixturevalue("far"))
    else:
        deployment = BelljarDeployment(workspace=tmp_path)
    await deployment.start()
    box = deployment.runtime.box
    link = await box.run(
        ["sh", "-c", 'mkdir -p "${1%/*}" && ln -s /workspace "$1"', "sh", str(tmp_path)]
    )
    assert link.ok, link.stderr
    yield deployment.runtime
    await deployment.stop()


@pytest.fixture
async def runtime_with_default_session(
    remote_runtime: BelljarRuntime,
) -> AsyncIterator[BelljarRuntime]:
    await remote_runtime.create_session(CreateBashSessionRequest())
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())
