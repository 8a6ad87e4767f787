"""Where the files beside the code are."""

from __future__ import annotations

import pytest

from belljar import resources
from belljar.errors import EngineError


def test_the_files_that_ship_are_found() -> None:
    assert (resources.directory("policies") / "default.toml").is_file()
    assert (resources.directory("sandbox-images") / "base").is_dir()
    assert resources.init_binary().read_bytes().startswith(b"\x7fELF")
    assert resources.init_binary("amd64") == resources.init_binary("x86_64")


def test_a_machine_without_an_init_is_named() -> None:
    with pytest.raises(EngineError, match="no init for riscv64"):
        resources.init_binary("riscv64")
