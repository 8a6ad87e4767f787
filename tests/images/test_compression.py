"""Compressed data is read back unchanged, for every format."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from belljar.errors import ImageInvalid
from belljar.images import compression, unpack
from belljar.images.compression import ZSTD, is_compressed, plain
from belljar.images.unpack import Metered

DATA = b"a layer" * 10_000


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_layer_is_read_back_unchanged(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    with plain(io.BytesIO(pack(DATA)), tmp_path) as stream:
        assert stream.read() == DATA
    (tmp_path / "file").write_bytes(pack(DATA))
    assert is_compressed(tmp_path / "file") == (pack is not bytes)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_zstd_is_read_by_its_program_and_leaves_no_copy(tmp_path: Path) -> None:
    packed = subprocess.run(
        ["zstd", "-c"], input=DATA, capture_output=True, check=True
    ).stdout
    with plain(io.BytesIO(packed), tmp_path) as stream:
        assert stream.read() == DATA
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_a_cut_off_zstd_stream_is_an_error(tmp_path: Path) -> None:
    packed = subprocess.run(
        ["zstd", "-c"], input=os.urandom(300_000), capture_output=True, check=True
    ).stdout
    with (
        plain(io.BytesIO(packed[:150_000]), tmp_path) as stream,
        pytest.raises(EOFError),
    ):
        shutil.copyfileobj(stream, io.BytesIO())


@pytest.mark.parametrize("padding", [b"", bytes(4), bytes(1 << 20)])
def test_several_xz_streams_are_read_as_one(tmp_path: Path, padding: bytes) -> None:
    with plain(
        io.BytesIO(lzma.compress(DATA) + padding + lzma.compress(b"more") + padding),
        tmp_path,
    ) as stream:
        assert stream.read() == DATA + b"more"
    with (
        plain(io.BytesIO(lzma.compress(DATA)[:-20]), tmp_path) as stream,
        pytest.raises(EOFError),
    ):
        stream.read()


def test_xz_that_claims_to_need_the_whole_memory_is_refused(tmp_path: Path) -> None:
    packed = bytearray(lzma.compress(DATA))
    end = 12 + (packed[12] + 1) * 4 - 4
    packed[16] = 40  # a dictionary of 4 GiB
    packed[end : end + 4] = zlib.crc32(packed[12:end]).to_bytes(4, "little")
    with (
        plain(io.BytesIO(packed), tmp_path) as stream,
        pytest.raises(ImageInvalid, match="Memory"),
    ):
        Metered(stream, 1 << 20).drain()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_damaged_data_is_the_archive_s_fault(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    packed = bytearray(pack(DATA))
    packed[-5] ^= 1
    with (
        plain(io.BytesIO(packed), tmp_path) as stream,
        pytest.raises(ImageInvalid, match="compression"),
    ):
        Metered(stream, 1 << 20).drain()


def test_a_copy_stops_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "KEEP_FREE", 1 << 62)
    with pytest.raises(ImageInvalid, match="does not fit"):
        compression.copy(io.BytesIO(DATA), tmp_path / "copy")


def test_without_zstd_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression.shutil, "which", lambda name: None)
    with (
        pytest.raises(ImageInvalid, match="install the program zstd"),
        plain(io.BytesIO(ZSTD + DATA), tmp_path),
    ):
        pass
