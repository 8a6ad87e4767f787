"""The wheel: built from git's files with Python packages alone, and used without a checkout."""

from __future__ import annotations

import email
import os
import re
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import belljar

ROOT = Path(__file__).resolve().parent.parent
MACHINES = {"x86_64": 62, "aarch64": 183}  # ELF e_machine

LOCK = ROOT / "sandbox-images/setup/lock/run.txt"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    # Nothing of this checkout, its venv or the coverage run may leak into the build.
    foreign = ("PYTHON", "COV", "VIRTUAL")
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(foreign)
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's files as in a fresh clone, without build products."""
    copy = tmp_path_factory.mktemp("source")
    listed = run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
    ).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
            (copy / name).chmod((ROOT / name).stat().st_mode)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as a distributor does. So that must be complete."""
    out = tmp_path_factory.mktemp("dist")
    run(
        sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=source
    )
    (out / "unpacked").mkdir()
    run("tar", "-xf", next(out.glob("belljar_sandbox-*.tar.gz")), cwd=out / "unpacked")
    (unpacked,) = (out / "unpacked").iterdir()
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        out,
        cwd=unpacked,
    )
    (built,) = out.glob("belljar_sandbox-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed by this environment's pip. Giving the new environment its own pip would take longer than the tests."""
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin/python"]
    install = [*pip, "install", "-q", "--no-deps", "--no-compile"]
    run(*install, "--require-hashes", "--only-binary", ":all:", "-r", LOCK)
    run(*install, wheel)
    run(*pip, "check")
    return venv / "bin"


def test_the_wheel_carries_a_static_init_for_both_machines(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for machine, number in MACHINES.items():
            binary = archive.read(f"belljar/_init/belljar-init-{machine}")
            assert binary[:4] == b"\x7fELF"
            assert int.from_bytes(binary[18:20], "little") == number
            assert len(binary) < 150_000


def test_the_wheel_carries_the_policies_and_the_recipes(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"belljar/policies/default.toml", "belljar/_init/policies.json"} <= names
    assert "belljar/sandbox-images/base/packages" in names
    package = ROOT / "src" / "belljar"
    files = (
        path
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    assert {f"belljar/{path.relative_to(package)}" for path in files} <= names
    assert not [name for name in names if name.startswith(("tests/", "src/"))]


def test_the_metadata_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [
            each for each in archive.namelist() if each.endswith(".dist-info/METADATA")
        ]
        metadata = email.message_from_bytes(archive.read(name))
        recipes = {
            each.split("/")[2]
            for each in archive.namelist()
            if each.startswith("belljar/sandbox-images/")
        }
    assert metadata["Name"] == "belljar-sandbox"
    assert metadata["Version"] == belljar.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# Belljar")
    assert metadata["Author"]
    assert metadata["License-Expression"] == "Apache-2.0"
    urls = dict(each.split(", ") for each in metadata.get_all("Project-URL"))
    assert {"Documentation", "Source", "Changelog"} <= set(urls)
    pythons = {
        each.rpartition(" ")[2]
        for each in metadata.get_all("Classifier")
        if "Python :: 3." in each
    }
    assert pythons == {"3.11", "3.12", "3.13", "3.14"}
    assert not {"dev", "test"} & set(metadata.get_all("Provides-Extra"))
    assert {
        each.parent.name for each in (ROOT / "sandbox-images").glob("*/packages")
    } <= recipes
    assert not {"init", "setup"} & recipes


def test_the_installed_command_knows_its_version(
    installed: Path, tmp_path: Path
) -> None:
    show = "from importlib.metadata import version; print(version('belljar-sandbox'))"
    version = run(installed / "python", "-c", show, cwd=tmp_path)
    assert run(installed / "belljar", "--version", cwd=tmp_path) == f"belljar {version}"


def test_the_installed_command_works_without_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    assert "run" in run(installed / "belljar", "--help", cwd=tmp_path)
    show = "print(resources.init_binary(), catalog.reference('base'))"
    script = (
        f"from belljar import resources; from belljar.images import catalog; {show}"
    )
    binary, reference = run(installed / "python", "-c", script, cwd=tmp_path).split()
    assert Path(binary).is_relative_to(installed.parent)
    assert Path(binary).stat().st_mode & stat.S_IXUSR
    assert reference.startswith("belljar/base:")


def test_the_installed_policy_judges(installed: Path, tmp_path: Path) -> None:
    script = "import belljar; print(belljar.Policy.load('default').judge('rm -rf /').decision)"
    assert run(installed / "python", "-c", script, cwd=tmp_path) == "deny\n"


def test_the_installed_command_runs_one_in_a_sandbox(
    installed: Path, base_image: str, workspace: Path, tmp_path: Path
) -> None:
    assert (
        run(
            installed / "belljar",
            "run",
            "--workspace",
            workspace,
            "echo hi",
            cwd=tmp_path,
        )
        == "hi\n"
    )


def test_a_build_needs_no_compiler_of_the_system() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"][
        "requires"
    ]
    assert [re.split(r"\W", each)[0] for each in needed] == ["hatchling", "ziglang"]


def test_only_the_docker_engine_imports_docker() -> None:
    package = ROOT / "src/belljar"
    sources = package.rglob("*.py")
    imports = re.compile(r"(?m)^\s*(import|from) docker\b")
    importing = {path.parent for path in sources if imports.search(path.read_text())}
    assert importing == {package / "engines/docker"}
