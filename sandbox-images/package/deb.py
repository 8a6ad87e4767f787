"""Builds a Debian package: `python sandbox-images/package/deb.py [--out dist]`, or `make deb`.

The package holds a virtual environment below /usr/lib/belljar with the locked packages and our own wheel, the command
in /usr/bin, its manual page, completions and licence. It is for the Debian whose /usr/bin/python3 builds it: compiled
packages fit one version of Python. Built twice from one commit it has the same bytes, so a rebuild can be compared.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "sandbox-images/setup/lock/run.txt"
PYTHON = "/usr/bin/python3"
HOME = "usr/lib/belljar"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/belljar",
    "zsh": "usr/share/zsh/vendor-completions/_belljar",
    "fish": "usr/share/fish/vendor_completions.d/belljar.fish",
}
CONTROL = """\
Package: belljar
Version: {version}
Architecture: {machine}
Maintainer: The Belljar authors <authors@belljar.example>
Installed-Size: {size}
Depends: python3 (>= {python}), python3 (<< {next_python})
Recommends: runc | crun | docker.io | podman, uidmap
Suggests: mmdebstrap
Section: admin
Priority: optional
Homepage: https://belljar.example
Description: run the shell commands of AI agents in containers
 Each command or background shell runs in a throwaway or per-session container
 with the workspace mounted, limits set and the network off. A policy on the
 host judges it first; its output is streamed back.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    print(build(parser.parse_args().out))


def build(out: Path) -> Path:
    """Returns the path of the package."""
    os.environ["SOURCE_DATE_EPOCH"] = _last_change()
    with tempfile.TemporaryDirectory(prefix="belljar-deb-") as name:
        place = Path(name)
        wheel = _wheel(place / "dist")
        tree = place / "tree"
        _environment(tree, wheel)
        _documents(tree)
        package = out / f"belljar_{_version(wheel)}_{MACHINES[platform.machine()]}.deb"
        _control(tree, wheel)
        _settle(tree)
        out.mkdir(parents=True, exist_ok=True)
        _run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", tree, package)
    return package


def _run(
    *words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> str:
    return subprocess.run(
        words, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd, env=env
    ).stdout


def _last_change() -> str:
    """Unix time of the last commit: the age of every file in the package."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or _run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()


def _wheel(out: Path) -> Path:
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=ROOT)
    (wheel,) = out.glob("*.whl")
    return wheel


def _version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def _python() -> tuple[int, int]:
    shown = _run(PYTHON, "-c", "import sys; print(*sys.version_info[:2])")
    major, minor = map(int, shown.split())
    return major, minor


def _environment(tree: Path, wheel: Path) -> None:
    """A virtual environment that works at its place in the package, not at the one where it is made."""
    home = tree / HOME
    _run(PYTHON, "-m", "venv", "--without-pip", home)
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        home / "bin/python3",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
    ]
    _run(*install, "--require-hashes", "--only-binary", ":all:", "-r", LOCK)
    _run(*install, wheel)
    for script in (home / "bin").iterdir():
        if script.is_symlink() or not script.read_bytes().startswith(b"#!"):
            continue
        script.write_text(
            re.sub(r"\A#!.*", f"#!/{HOME}/bin/python3", script.read_text())
        )
    for activation in (home / "bin").glob("*ctivate*"):
        activation.unlink()
    for url in home.rglob("direct_url.json"):
        url.unlink()  # names the directory of this build
    for record in home.rglob("*.dist-info/RECORD"):
        lines = sorted(
            record.read_text().splitlines(keepends=True)
        )  # pip writes them in any order
        kept = [
            line for line in lines if "/bin/" not in line and "direct_url" not in line
        ]  # scripts have changed
        record.write_text("".join(kept))
    settings = (home / "pyvenv.cfg").read_text()
    (home / "pyvenv.cfg").write_text(re.sub(r"(?m)^command = .*\n", "", settings))
    compile_all: list[str | Path] = [
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        tree,
        "-p",
        "/",
    ]
    _run(PYTHON, *compile_all, home / "lib")
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/belljar").symlink_to(f"/{HOME}/bin/belljar")


def _documents(tree: Path) -> None:
    """The manual page and completions are made by the packaged command itself."""
    home = tree / HOME
    command: list[str | Path] = [home / "bin/python3", "-m", "belljar"]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    page = _run(*command, "man", env=environment)
    _write(tree / "usr/share/man/man1/belljar.1.gz", _packed(page))
    for shell, path in COMPLETIONS.items():
        _write(
            tree / path, _run(*command, "completion", shell, env=environment).encode()
        )
    documents = tree / "usr/share/doc/belljar"
    _write(documents / "changelog.gz", _packed((ROOT / "CHANGELOG.md").read_text()))
    for name in ("README.md", "SECURITY.md"):
        _write(documents / name, (ROOT / name).read_bytes())
    _write(documents / "copyright", (ROOT / "LICENSE").read_bytes())


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _control(tree: Path, wheel: Path) -> None:
    major, minor = _python()
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file()) >> 10
    text = CONTROL.format(
        version=_version(wheel),
        machine=MACHINES[platform.machine()],
        size=size,
        python=f"{major}.{minor}",
        next_python=f"{major}.{minor + 1}",
    )
    _write(tree / "DEBIAN/control", text.encode())


def _settle(tree: Path) -> None:
    """Modes and times that do not depend on who built it, and when."""
    moment = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
        os.utime(path, (moment, moment), follow_symlinks=False)


if __name__ == "__main__":
    if shutil.which("dpkg-deb") is None or not os.path.exists(PYTHON):
        sys.exit(
            "a Debian package is built on Debian: dpkg-deb and /usr/bin/python3 are needed"
        )
    main()
