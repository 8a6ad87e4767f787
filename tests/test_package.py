"""The bill of materials, and an init that is the same whoever builds it. `make deb-test` tries the Debian package."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def bill() -> dict[str, Any]:
    shown = subprocess.run(
        [sys.executable, ROOT / "sandbox-images/package/sbom.py"],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(shown.stdout)


def test_the_bill_of_materials_names_every_locked_package_with_the_hashes_of_its_files() -> (
    None
):
    lock = (ROOT / "sandbox-images/setup/lock/run.txt").read_text()
    locked = dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^ \\;]+)", lock))
    parts = {
        part["name"]: part for part in bill()["components"] if part["type"] == "library"
    }
    assert {name: part["version"] for name, part in parts.items()} == locked
    hashes = [
        each["hashes"][0]["content"]
        for part in parts.values()
        for each in part["externalReferences"]
    ]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", lock))


def test_the_bill_of_materials_is_cyclonedx_and_the_same_each_time() -> None:
    first = bill()
    assert (first["bomFormat"], first["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first["serialNumber"]
    )
    references = [part["bom-ref"] for part in first["components"]]
    assert len(references) == len(set(references))
    assert first["dependencies"] == [{"ref": "belljar", "dependsOn": references}]
    assert bill() == first


def test_the_init_is_named_in_the_bill_with_its_own_hash() -> None:
    files = {
        part["name"]: part["hashes"][0]["content"]
        for part in bill()["components"]
        if part["type"] == "file"
    }
    binary = Path(sys.prefix, "share/belljar", f"belljar-init-{os.uname().machine}")
    assert files[binary.name] == hashlib.sha256(binary.read_bytes()).hexdigest()


def test_the_init_built_in_two_places_without_caches_has_the_same_bytes(
    tmp_path: Path,
) -> None:
    digests = set()
    for place in ("here", "somewhere/else"):
        checkout = tmp_path / place
        shutil.copytree(ROOT / "sandbox-images/init", checkout / "sandbox-images/init")
        shutil.copytree(
            ROOT / "sandbox-images/setup/lock", checkout / "sandbox-images/setup/lock"
        )
        (checkout / "src/belljar").mkdir(parents=True)
        shutil.copy(ROOT / "src/belljar/ancestry.py", checkout / "src/belljar")
        script = (
            "import runpy, sys; from pathlib import Path; build = runpy.run_path(sys.argv[1]);"
            "build['_compile_without_cache'](build['_flags'](build['HOST']), Path(sys.argv[2]))"
        )
        target = checkout / "init"
        subprocess.run(
            [
                sys.executable,
                "-c",
                script,
                checkout / "sandbox-images/init/build.py",
                target,
            ],
            check=True,
        )
        digests.add(hashlib.sha256(target.read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("machine", "tag", "beginning"),
    [
        ("x86_64", "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64", b"\x7fELF"),
        ("any", "py3-none-any", b"#!/bin/sh\n"),
    ],
)
def test_a_wheel_has_the_client_of_its_machine_or_a_script(
    tmp_path: Path, machine: str, tag: str, beginning: bytes
) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        env={**os.environ, "BELLJAR_WHEEL": machine},
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith(f"-{tag}.whl")
    with zipfile.ZipFile(wheel) as content:
        (script,) = (n for n in content.namelist() if n.endswith("scripts/belljar"))
        assert content.read(script).startswith(beginning)
        (entries,) = (n for n in content.namelist() if n.endswith("entry_points.txt"))
        assert b"belljar-python = " in content.read(entries)
