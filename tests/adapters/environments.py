"""One environment for each framework: they don't fit one.

They are made once, below ~/.cache/belljar-adapters, from wheels alone, and shared by all checkouts. Belljar itself is
not in them: each run unpacks a wheel of its own checkout beside, so that its entry points and files are a package's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.adapters.frameworks import Framework

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "belljar-adapters"
)
TOOLS = ("pytest>=9",)
CHECKOUT = "BELLJAR_CHECKOUT_PYTHON"
"""A variable: the Python of the checkout's own environment, in which a service can run."""


class NotRun(Exception):
    """Why a framework's tests cannot run on this machine."""


def environment(framework: Framework, *, make: bool = False) -> Path:
    """The framework's environment. It is made if it is missing and `make` says so."""
    python = _python(framework)
    place = CACHE / f"{framework.name}-{_digest(framework, python)}"
    if not (place / "complete").exists():
        if not make:
            raise NotRun(
                f"no environment with {framework.pins[0]}: `make adapters-test` makes it"
            )
        CACHE.mkdir(parents=True, exist_ok=True)
        with _locked(place.with_suffix(".lock")):
            if not (place / "complete").exists():
                _make(place, framework, python)
    return place


def _python(framework: Framework) -> str:
    """A Python that is new enough: this one, one on PATH, or one of pyenv's."""
    if sys.version_info[:2] >= framework.python:
        return os.path.realpath(
            sys.executable
        )  # not the one in a checkout's .venv: environments are shared
    wanted = [
        f"{major}.{minor}"
        for major, minor in ((3, 13), (3, 12), (3, 14))
        if (major, minor) >= framework.python
    ]
    places = [shutil.which(f"python{version}") for version in wanted]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    places += [
        str(path)
        for version in wanted
        for path in sorted(pyenv.glob(f"{version}.*/bin/python"))
    ]
    for place in filter(None, places):
        if (
            subprocess.run(
                [place, "-c", "import ssl, venv"], capture_output=True
            ).returncode
            == 0
        ):
            return place
    raise NotRun(
        f"needs Python {'.'.join(map(str, framework.python))} or newer, and there is none here"
    )


def _requirements(framework: Framework) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [
        *framework.pins,
        *TOOLS,
        *project["dependencies"],
        *project["optional-dependencies"]["remote"],
    ]


def _digest(framework: Framework, python: str) -> str:
    parts = (_requirements(framework), python, framework.sdist, framework.without)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _make(place: Path, framework: Framework, python: str) -> None:
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([python, "-m", "venv", place], check=True)
    try:
        requirements = _requirements(framework)
        if framework.without:
            _pip(
                place, "install", "--only-binary", ":all:", "--no-deps", *framework.pins
            )
            requirements = [
                *requirements[len(framework.pins) :],
                *_needs(place, framework),
            ]
        _pip(place, "install", "--only-binary", ":all:", *requirements)
        if framework.sdist:
            _unpack_sdist(place, framework)
    except NotRun:
        shutil.rmtree(place, ignore_errors=True)
        raise
    (place / "complete").touch()


def _pip(place: Path, verb: str, *arguments: str | Path) -> None:
    pip = [
        place / "bin/python",
        "-m",
        "pip",
        verb,
        "-q",
        "--disable-pip-version-check",
        *arguments,
    ]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise NotRun(
            f"cannot be installed: {done.stderr.strip().splitlines()[-1][:200]}"
        )


def _needs(place: Path, framework: Framework) -> list[str]:
    """What the installed pins ask for, but for what is in `without`."""
    show = "import sys; from importlib.metadata import requires; print(*requires(sys.argv[1]) or (), sep='\\n')"
    needs: list[str] = []
    for name in (pin.split("==")[0] for pin in framework.pins):
        found = subprocess.run(
            [place / "bin/python", "-c", show, name],
            check=True,
            capture_output=True,
            text=True,
        )
        needs += [line for line in found.stdout.splitlines() if "extra ==" not in line]
    own = {pin.split("==")[0] for pin in framework.pins}
    return [
        line
        for line in needs
        if re.split(r"[^\w-]", line)[0] not in own | set(framework.without)
    ]


def _unpack_sdist(place: Path, framework: Framework) -> None:
    """Its source distribution in sdist/. pip checks the hash before anything of it runs."""
    with tempfile.TemporaryDirectory() as name:
        wanted = Path(name, "wanted.txt")
        wanted.write_text(f"{framework.pins[0]} --hash=sha256:{framework.sdist}\n")
        _pip(
            place,
            "download",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--require-hashes",
            "-r",
            wanted,
            "-d",
            name,
        )
        (archive,) = Path(name).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(place / "sdist", filter="data")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install_checkout(place: Path) -> Path:
    """A wheel of this checkout, unpacked into `place`, for PYTHONPATH."""
    wheels = place / "wheels"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    site = place / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-compile",
    ]
    subprocess.run([*pip, "--target", site, wheel], check=True, capture_output=True)
    return site


def pytest_in(
    environment: Path, site: Path, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    """pytest in a framework's environment."""
    return run_in(
        environment,
        site,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "default",
        *arguments,
    )


def run_in(
    environment: Path, site: Path, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    """The environment's Python, with this checkout's package and tests."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "COV"))
    }
    variables = {
        **inherited,
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
        CHECKOUT: sys.executable,
    }
    command = [environment / "bin/python", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def python_version(environment: Path) -> str:
    show = "import platform; print(platform.python_version())"
    return subprocess.run(
        [environment / "bin/python", "-c", show],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
