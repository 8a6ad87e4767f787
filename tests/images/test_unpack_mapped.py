"""The child process that unpacks for an ordinary user: an archive in, its remaining allowance or an error out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.images.archives import link, member, tar

from belljar.images.unpack import Allowance


def child(archive: bytes, target: Path) -> dict[str, Any]:
    target.mkdir()
    program = [
        sys.executable,
        "-P",
        "-m",
        "belljar.images.unpack_mapped",
        str(target),
        '{"bytes": 100, "entries": 10}',
    ]
    answer: dict[str, Any] = json.loads(
        subprocess.run(program, input=archive, capture_output=True, check=True).stdout
    )
    return answer


def test_a_layer_is_unpacked_and_the_remaining_allowance_returned(
    tmp_path: Path,
) -> None:
    left = child(tar([member("file", b"12345")]), tmp_path / "layer")
    assert (tmp_path / "layer/file").read_bytes() == b"12345"
    assert left["bytes"] < 100
    assert left["entries"] == 9
    assert left["steps"] < Allowance().steps


def test_an_invalid_archive_is_reported_and_writes_nothing_outside(
    tmp_path: Path,
) -> None:
    answer = child(
        tar([link("out", ".."), member("out/file", b"x")]), tmp_path / "layer"
    )
    assert "error" in answer
    assert not (tmp_path / "file").exists()
