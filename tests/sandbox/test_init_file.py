"""Belljar's own files that a container sees."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from belljar.errors import BelljarError
from belljar.sandbox import init_file as initfile
from belljar.sandbox.init_file import local_link
from belljar.sandbox.spec import LinkPlan


@pytest.fixture
def init(tmp_path: Path) -> Path:
    path = tmp_path / "belljar-init-x86_64"
    path.write_bytes(b"\x7fELF")
    return path


def test_the_init_can_be_run_but_not_read(init: Path, tmp_path: Path) -> None:
    plan = local_link(init, tmp_path, tmp_path / "link")
    assert stat.S_IMODE(os.stat(plan.init).st_mode) == 0o111
    assert "127.0.0.1 localhost" in Path(plan.hosts).read_text()
    assert (plan.kind, plan.directory) == ("socket", str(tmp_path / "link"))


def test_parallel_installs_give_one_complete_set_of_files(
    init: Path, tmp_path: Path
) -> None:
    def install(number: int) -> LinkPlan:
        initfile._installed.cache_clear()
        return local_link(init, tmp_path, tmp_path)

    with ThreadPoolExecutor(8) as threads:
        plans = set(threads.map(install, range(40)))
    assert len(plans) == 1
    assert [path for path in tmp_path.iterdir() if path.name.startswith("new-")] == []


def test_deleted_files_are_installed_again(init: Path, tmp_path: Path) -> None:
    first = local_link(init, tmp_path, tmp_path)
    shutil.rmtree(Path(first.init).parent)
    assert local_link(init, tmp_path, tmp_path) == first
    assert Path(first.init).exists()


def test_another_version_of_the_init_gets_its_own_files(
    init: Path, tmp_path: Path
) -> None:
    first = local_link(init, tmp_path, tmp_path)
    init.write_bytes(b"\x7fELF2")
    initfile._installed.cache_clear()
    assert local_link(init, tmp_path, tmp_path).init != first.init


def test_a_run_directory_that_is_missing_is_one_clear_error(
    init: Path, tmp_path: Path
) -> None:
    with pytest.raises(BelljarError, match="init cannot be installed"):
        local_link(init, tmp_path / "missing", tmp_path)
