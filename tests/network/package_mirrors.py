"""Local package registries as plain files, each with one package called `hellodoor`."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

NAME = "hellodoor"


def lay_out(root: Path, url: str) -> None:
    """Write the registries below `root`, which is served at `url`."""
    for make in (_pypi, _npm, _crates, _goproxy, _debian):
        for path, content in make(url).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(
                content.encode() if isinstance(content, str) else content
            )


def unpack_pip(target: Path) -> None:
    """Unpack the pip that comes with Python, for an image without pip: `PYTHONPATH=… python3 -m pip`."""
    places = (
        Path(sysconfig.get_path("stdlib"), "ensurepip", "_bundled"),
        Path("/usr/share/python-wheels"),
    )  # Debian's
    wheels = [path for place in places for path in place.glob("pip-*.whl")]
    if not wheels:
        pytest.skip("this machine's Python comes without pip")
    shutil.unpack_archive(wheels[0], target, "zip")


def _pypi(url: str) -> dict[str, str | bytes]:
    info = f"{NAME}-1.0.dist-info"
    files = {
        f"{NAME}.py": "print('hello from outside')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"{NAME}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    wheel = f"{NAME}-1.0-py3-none-any.whl"
    return {
        f"simple/{NAME}/index.html": f'<a href="{url}/wheels/{wheel}">{wheel}</a>',
        f"wheels/{wheel}": _zip(files),
    }


def _npm(url: str) -> dict[str, str | bytes]:
    package = {"name": NAME, "version": "1.0.0", "main": "index.js", "bin": "index.js"}
    program = "#!/usr/bin/env node\nconsole.log('hello from outside')"
    tarball = _tar(
        {"package/package.json": json.dumps(package), "package/index.js": program}
    )
    dist = {
        "tarball": f"{url}/tarballs/{NAME}-1.0.0.tgz",
        "shasum": hashlib.sha1(tarball).hexdigest(),
    }
    about = {
        "name": NAME,
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {**package, "dist": dist}},
    }
    return {f"npm/{NAME}": json.dumps(about), f"tarballs/{NAME}-1.0.0.tgz": tarball}


def _crates(url: str) -> dict[str, str | bytes]:
    manifest = f'[package]\nname = "{NAME}"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = _tar(
        {
            f"{NAME}-1.0.0/Cargo.toml": manifest,
            f"{NAME}-1.0.0/src/lib.rs": "// hello from outside\n",
        }
    )
    entry = {"name": NAME, "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
             "cksum": hashlib.sha256(crate).hexdigest()}  # fmt: skip
    return {
        "crates/config.json": json.dumps(
            {"dl": f"{url}/crates/{{crate}}-{{version}}.crate"}
        ),
        f"crates/{NAME[:2]}/{NAME[2:4]}/{NAME}": json.dumps(entry) + "\n",
        f"crates/{NAME}-1.0.0.crate": crate,
    }


def _goproxy(url: str) -> dict[str, str | bytes]:
    module, version = f"example.com/{NAME}", "v1.0.0"
    manifest = f"module {module}\n"
    top = f"{module}@{version}"
    files = {
        f"{top}/go.mod": manifest,
        f"{top}/a.go": f"package {NAME}\n\n// hello from outside\n",
    }
    return {
        f"go/{module}/@v/list": f"{version}\n",
        f"go/{module}/@v/{version}.info": json.dumps({"Version": version}),
        f"go/{module}/@v/{version}.mod": manifest,
        f"go/{module}/@v/{version}.zip": _zip(files),
    }


def _debian(url: str) -> dict[str, str | bytes]:
    about = f"Package: {NAME}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.test>\n"
    program = {f"./usr/bin/{NAME}": "#!/bin/sh\necho hello from outside\n"}
    parts = {"debian-binary": b"2.0\n", "control.tar.gz": _tar({"./control": f"{about}Description: hello\n"}),
             "data.tar.gz": _tar(program, 0o755)}  # fmt: skip
    package = b"!<arch>\n"
    for name, content in parts.items():
        package += (
            f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        )
        package += content + b"\n" * (len(content) % 2)
    sums = f"Filename: ./{NAME}.deb\nSize: {len(package)}\nSHA256: {hashlib.sha256(package).hexdigest()}\n"
    return {
        f"deb/{NAME}.deb": package,
        "deb/Packages": f"{about}{sums}Description: hello\n",
    }


def _zip(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def _tar(files: dict[str, str], mode: int = 0o644) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), mode
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()
