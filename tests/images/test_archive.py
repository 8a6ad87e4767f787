"""Headers of an archive: one that lies, never ends or is cut is refused before anything is written."""

from __future__ import annotations

import gzip
import json
import subprocess
import tarfile
import tracemalloc
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.images.archives import configuration, digest, link, member, pax, tar
from tests.images.conftest import unpacked

from belljar.errors import ImageInvalid
from belljar.images.archive import Tar, plans
from belljar.images.unpack import HEADER_MAX


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME]
)
def test_a_header_that_would_fill_the_memory_is_refused(
    tmp_path: Path, kind: bytes
) -> None:
    info, content = member("x", b"0" * (8 << 20), type=kind)
    packed = gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + content, 1)

    with pytest.raises(ImageInvalid, match="header that is too large"):
        unpacked(tmp_path, gzip.decompress(packed))


def sparse(parts: str, real: int, data: bytes) -> bytes:
    info, content = member("x", parts.encode().ljust(512, b"\0") + data)
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": str(real),
    }
    return tar([(info, content)])


def test_a_sparse_member_is_written_with_its_holes(tmp_path: Path) -> None:
    with open(tmp_path / "holes", "wb") as file:
        file.write(b"begin")
        file.seek(1 << 20)
        file.write(b"middle")
        file.truncate(3 << 20)
    archive = subprocess.run(
        ["tar", "-cSf", "-", "holes"], cwd=tmp_path, check=True, capture_output=True
    ).stdout
    assert len(archive) < 1 << 19
    unpacked(tmp_path, archive)
    [copy] = [path for path in tmp_path.rglob("holes") if path != tmp_path / "holes"]
    assert copy.read_bytes() == (tmp_path / "holes").read_bytes()


@pytest.mark.parametrize(
    ("parts", "real"),
    [
        ("1\n0\n512\n", 1 << 50),
        (
            "2\n4096\n256\n0\n256\n",
            8192,
        ),  # runs backwards: tarfile would search for the gap forever
        ("2\n0\n512\n100\n512\n", 8192),
        ("1\n8000\n512\n", 8192),
    ],
)
def test_sparse_members_that_lie_are_refused(
    tmp_path: Path, parts: str, real: int
) -> None:
    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, sparse(parts, real, b"d" * 512))


def test_an_endless_sparse_map_is_refused(tmp_path: Path) -> None:
    info, content = member("x", b"99999999999\n" + b"1\n" * (4 << 20))
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": "1",
    }

    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, tar([(info, content)]))


def remembered(archive: bytes, path: Path) -> int:
    """Peak memory for reading an archive, in bytes, minus what one header may take."""
    path.write_bytes(archive)
    tracemalloc.start()
    with suppress(ImageInvalid):
        plans(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - 4 * HEADER_MAX


@pytest.mark.parametrize(
    ("kind", "key"), [(tarfile.XGLTYPE, "comment.{}"), (tarfile.XHDTYPE, "path")]
)
def test_headers_of_many_members_are_not_kept(
    tmp_path: Path, kind: bytes, key: str
) -> None:
    empty = member("x")[0].tobuf()
    parts = [
        pax(kind, key.format(n), f"{n}" + "v" * (3 << 20)) + empty for n in range(20)
    ]
    assert remembered(b"".join(parts) + bytes(1024), tmp_path / "archive.tar") < 0


def test_many_images_with_one_large_configuration_do_not_fill_the_memory(
    tmp_path: Path,
) -> None:
    config = json.dumps(
        {"rootfs": {"diff_ids": [digest(b"")]}, "config": {"Env": ["x" * (3 << 20)]}}
    ).encode()
    listing = json.dumps([{"Config": "c", "Layers": ["l"]}] * 1000).encode()
    path = tmp_path / "images.tar"
    path.write_bytes(
        tar([member("c", config), member("l"), member("manifest.json", listing)])
    )
    with pytest.raises(ImageInvalid, match="too large"):
        plans(path)


@pytest.mark.parametrize("settings", [{"Env": ["A=\0"]}, {"Volumes": {"/x\0": {}}}])
def test_a_configuration_with_a_nul_byte_is_refused(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    config = json.dumps(
        {"rootfs": {"diff_ids": [digest(b"")]}, "config": settings}
    ).encode()
    path = tmp_path / "image.tar"
    listing = json.dumps([{"Config": "c", "Layers": ["l"]}]).encode()
    path.write_bytes(
        tar([member("c", config), member("l"), member("manifest.json", listing)])
    )
    with pytest.raises(ImageInvalid, match="NUL"):
        plans(path)


def test_a_layer_that_docker_saved_once_is_found_by_its_link(tmp_path: Path) -> None:
    config = configuration([b"a", b"a", b"a"])
    listing = json.dumps(
        [{"Config": "c", "Layers": ["1/layer.tar", "2/layer.tar", "3/layer.tar"]}]
    ).encode()
    links = [
        link("1/layer.tar", "../2/layer.tar"),
        link("2/layer.tar", "3/layer.tar", tarfile.LNKTYPE),
    ]
    path = tmp_path / "saved.tar"
    path.write_bytes(
        tar(
            [
                *links,
                member("3/layer.tar", b"a"),
                member("c", config),
                member("manifest.json", listing),
            ]
        )
    )
    [plan] = plans(path)
    for layer in plan.layers:
        with closing(layer.open()) as stream:
            assert stream.read() == b"a"


@pytest.mark.parametrize("target", ["../../etc/passwd", "/etc/passwd", "1", "3", ""])
def test_a_link_in_an_archive_leads_nowhere_else(tmp_path: Path, target: str) -> None:
    path = tmp_path / "saved.tar"
    path.write_bytes(tar([link("1", target), link("3", "1"), member("x", b"x")]))
    with pytest.raises(ImageInvalid, match="missing 1"):
        Tar(path).open("1")


def test_a_root_file_system_whose_end_is_missing_is_refused(tmp_path: Path) -> None:
    """The cut is between two members, where nothing else reveals it."""
    path = tmp_path / "root.tar"
    path.write_bytes(tar([member("a", b"x" * 512), member("b", b"y")])[:1024])
    with pytest.raises(ImageInvalid, match="its end is missing"):
        plans(path)


@pytest.mark.parametrize("cut", [100, 511, 700, 1300])
def test_a_cut_archive_is_refused_or_empty(tmp_path: Path, cut: int) -> None:
    data = tar([member("a", b"x" * 600), member("b", b"y")])[:cut]

    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, data)


def test_random_bytes_are_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, b"\x01" * 4096)
