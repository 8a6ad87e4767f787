"""Signals that come while the command line launches or imports."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from tests.surfaces.invoking import start

from belljar.surfaces.cli.signals import interrupts_delayed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_launch_leaves_nothing(
    workspace: Path, tmp_path: Path, number: int
) -> None:
    own = Path(
        tempfile.mkdtemp(prefix="bj", dir=Path(os.environ["BELLJAR_RUN"]).parent)
    )
    with start(
        "run", "--workspace", workspace, "sleep 60", env={"BELLJAR_RUN": str(own)}
    ) as process:
        while not list(own.glob("bj-*")):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(number)
        assert process.wait(120) == 128 + number
    assert not list(own.glob("bj-*"))
    shutil.rmtree(own)


def test_ctrl_c_is_delayed_until_an_import_is_done() -> None:
    """Otherwise the import lock could stay held, and the launching thread would wait for it forever."""
    done = []

    def imports() -> None:
        with interrupts_delayed():
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        imports()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
