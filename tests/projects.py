"""`make projects`: the suites of real projects give the same result inside a default sandbox as outside.

One project of Python, one of C and one of Node are fetched with this machine's own clients. A project that cannot be
fetched is skipped with the reason. Not part of `make test`: it takes a minute, and the image `dev`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.debian_tree import mirror

import belljar
from belljar import engines
from belljar.engines.base import image_store
from belljar.images import catalog


@dataclass(frozen=True)
class Project:
    fetch: Callable[[Path], Path]
    """Fetches the source into the given directory and returns where it was unpacked."""
    command: str
    outcome: str
    """Matches the parts of the output that must be equal, without times."""


def _sdist(at: Path) -> Path:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--no-build-isolation",
    ]
    _client(*pip, "-d", str(at), "sqlparse", cwd=at)
    return _unpacked(at, "sqlparse-*.tar.gz")


def _debian_source(at: Path) -> Path:
    """With package lists of our own, since this machine's apt may have no source packages."""
    (at / "lists").mkdir()
    (at / "sources").write_text(f"deb-src {mirror()} stable main\n")
    places = {"Dir::Etc::SourceList": at / "sources", "Dir::Etc::SourceParts": "/dev/null",
              "Dir::State::Lists": at / "lists", "Dir::Cache": at}  # fmt: skip
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in places.items())]
    _client(*apt, "-oAcquire::Languages=none", "update", cwd=at)
    _client(*apt, "source", "--download-only", "zlib", cwd=at)
    return _unpacked(at, "zlib_*.orig.tar.*")


def _npm_package(at: Path) -> Path:
    _client("npm", "pack", "--silent", "minimist", cwd=at)
    source = _unpacked(at, "minimist-*.tgz")
    (
        source / "package.json"
    ).unlink()  # else npm installs everything that its authors use
    _client(
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "tape@5",
        cwd=source,
    )
    return source


PROJECTS = {
    "python": Project(
        _sdist,
        "python3 -m pytest -q -p no:cacheprovider",
        r"\d+ (?:passed|failed|xfailed|skipped)",
    ),
    "c": Project(
        _debian_source,
        "./configure && make -j2 check && ./example",
        r"\*\*\* .* \*\*\*|.*(?:OK|FAILED).*",
    ),
    "node": Project(
        _npm_package,
        "node_modules/.bin/tape 'test/*.js'",
        r"# (?:tests|pass|fail)\s+\d+",
    ),
}


def _client(*command: str, cwd: Path) -> None:
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(
            f"nothing could be fetched: {command[0]} said {(done.stderr or done.stdout).strip()[-300:]}"
        )


def _unpacked(at: Path, pattern: str) -> Path:
    (archive,) = at.glob(pattern)
    (at / "source").mkdir()
    subprocess.run(["tar", "-C", at / "source", "-xf", archive], check=True)
    (source,) = (at / "source").iterdir()
    return source


@pytest.fixture(scope="module")
def image() -> str:
    return catalog.ensure(image_store(engines.connect()), "dev")


@pytest.mark.parametrize("kind", PROJECTS)
async def test_a_projects_own_suite_has_the_same_result_inside(
    kind: str, image: str, tmp_path: Path
) -> None:
    project = PROJECTS[kind]
    inside = project.fetch(tmp_path)
    outside = Path(shutil.copytree(inside, tmp_path / "outside", symlinks=True))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    shell = ["bash", "-c", project.command]
    native = subprocess.run(
        shell,
        cwd=outside,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert native.returncode == 0, native.stdout[-2000:] + native.stderr[-2000:]
    result = await belljar.run(project.command, workspace=str(inside), image=image)
    assert (result.cause, result.exit_code) == ("exited", 0), result.output[-2000:]
    found = sorted(
        re.findall(project.outcome, result.stdout)
    )  # `make -j` prints them in any order
    assert found
    assert found == sorted(re.findall(project.outcome, native.stdout))
