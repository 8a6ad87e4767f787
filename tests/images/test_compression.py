"""What is compressed is read as it was, whatever it was compressed with."""

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from belljar.errors import ImageInvalid
from belljar.images import compression
from belljar.images.compression import ZSTD, is_compressed, plain

DATA = b"a layer" * 10_000


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_layer_is_read_as_it_was(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    with plain(io.BytesIO(pack(DATA)), tmp_path) as stream:
        assert stream.read() == DATA
    (tmp_path / "file").write_bytes(pack(DATA))
    assert is_compressed(tmp_path / "file") == (pack is not bytes)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_zstd_is_read_by_its_program_and_leaves_no_copy(tmp_path: Path) -> None:
    packed = subprocess.run(["zstd", "-c"], input=DATA, capture_output=True, check=True).stdout
    with plain(io.BytesIO(packed), tmp_path) as stream:
        assert stream.read() == DATA
    assert list(tmp_path.iterdir()) == []


def test_without_zstd_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression.shutil, "which", lambda name: None)
    with pytest.raises(ImageInvalid, match="install the program zstd"), plain(io.BytesIO(ZSTD + DATA), tmp_path):
        pass
