"""Builds the init for both architectures with the compiler `ziglang` from PyPI; no other is needed.

By hand: `python sandbox-images/init/build.py [x86_64|aarch64|host|sanitize]…` writes to share/belljar of the
environment it runs in. As a hatchling hook it runs whenever a wheel is built. Binaries are kept in the user's cache by
a digest of their sources, flags and compiler, so another checkout of the same sources needs no compiler. A cache that
others could have written to is not used.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ANCESTRY = HERE.parent.parent / "src" / "belljar" / "ancestry.py"
LOCK = HERE.parent / "setup" / "lock" / "compiler.txt"
OUTPUT = Path(sys.prefix, "share", "belljar")
ARCHITECTURES = ("x86_64", "aarch64")
HOST = "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
LIMIT = 150_000  # bytes
NOT_CACHED = 3  # exit status of --cached if the binary would have to be compiled

FLAGS = [
    "-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wstrict-prototypes",
    "-static", "-fPIE", "-pie", "-fstack-protector-strong", "-fno-delete-null-pointer-checks",
    "-ftrivial-auto-var-init=zero", "-flto", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
    "-fno-sanitize=all", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
]  # fmt: skip
STRIP = ["-s"]
SANITIZE = [
    "-std=gnu11", "-O1", "-g", "-static", "-Wall", "-Wextra", "-fsanitize=undefined", "-fsanitize-trap=undefined",
]  # fmt: skip


def sources() -> list[Path]:
    return sorted(HERE.glob("*.c"))


def _digest(flags: list[str]) -> str:
    digest = hashlib.sha256(repr([*flags, *_locked_compiler()]).encode())
    for path in sorted([*sources(), *HERE.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _locked_compiler() -> list[str]:
    return re.findall(r"(?m)^ziglang==\S+", LOCK.read_text()) if LOCK.exists() else []


def _flags(architecture: str) -> list[str]:
    machine = HOST if architecture == "sanitize" else architecture
    return [
        "-target",
        f"{machine}-linux-musl",
        *(SANITIZE if architecture == "sanitize" else FLAGS + STRIP),
    ]


def _cached(name: str, flags: list[str]) -> Path | None:
    """The binary's path in the cache. None if others could write there (with sudo: the caller); it becomes PID 1."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(home, "belljar", "init", _digest(flags), name)
    untrusted = runpy.run_path(str(ANCESTRY))["untrusted"]
    try:
        if untrusted(path.parent) or untrusted(
            Path(home, "zig")
        ):  # the compiler's own cache
            return None
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return None if untrusted(path) else path
    except OSError:
        return None


def _compile(
    flags: list[str], target: Path, environment: dict[str, str] | None = None
) -> None:
    words = [sys.executable, "-m", "ziglang", "cc", *flags]
    with _unfinished(target) as name:
        subprocess.run(
            [*words, "-o", name, *map(str, sources())], check=True, env=environment
        )


def _compile_without_cache(flags: list[str], target: Path) -> None:
    with tempfile.TemporaryDirectory() as fresh:
        places = {"ZIG_GLOBAL_CACHE_DIR": fresh, "ZIG_LOCAL_CACHE_DIR": fresh}
        _compile(flags, target, {**os.environ, **places})


@contextmanager
def _unfinished(target: Path) -> Iterator[str]:
    """A temporary file that is renamed to the target when the block succeeds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    os.close(handle)
    try:
        yield name
        os.chmod(name, 0o755)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def build(
    architecture: str, output: Path = OUTPUT, *, compiling: bool = True
) -> Path | None:
    """Returns the path of the binary in `output`; None: it is not cached and must not be compiled."""
    flags = _flags(architecture)
    target = output / f"belljar-init-{architecture}"
    cached = _cached(target.name, flags)
    made = cached or target
    if cached is None or not cached.exists():
        if not compiling:
            return None
        (_compile if cached else _compile_without_cache)(flags, made)
    if architecture != "sanitize" and made.stat().st_size >= LIMIT:
        raise SystemExit(
            f"{made} is {made.stat().st_size} bytes: over the limit of {LIMIT}"
        )
    if made != target and (
        not target.exists() or target.read_bytes() != made.read_bytes()
    ):
        with _unfinished(target) as name:
            shutil.copyfile(made, name)
    return target


def _tables(output: Path) -> Path:
    """The shipped policies, parsed."""
    root = HERE.parent.parent
    sys.path.insert(0, str(root / "src"))
    from belljar import tables

    tables.write(root / "policies", output / tables.NAME)
    return output / tables.NAME


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, without hatchling
    pass
else:

    class InitBuildHook(BuildHookInterface):  # type: ignore[type-arg]
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if (
                version == "editable"
            ):  # its init is made by `make`, its recipes are found in the checkout
                return
            for recipe in HERE.parent.iterdir():
                if recipe.suffix == ".sh" or (recipe / "packages").exists():
                    build_data["force_include"][str(recipe)] = (
                        f"belljar/sandbox-images/{recipe.name}"
                    )
            for architecture in ARCHITECTURES:
                built = build(architecture, Path(self.directory))
                build_data["force_include"][str(built)] = (
                    f"belljar/_init/belljar-init-{architecture}"
                )
            build_data["force_include"][str(_tables(Path(self.directory)))] = (
                "belljar/_init/policies.json"
            )

        def finalize(
            self, version: str, build_data: dict[str, Any], artifact_path: str
        ) -> None:
            for architecture in ARCHITECTURES:
                Path(self.directory, f"belljar-init-{architecture}").unlink(
                    missing_ok=True
                )
            Path(self.directory, "policies.json").unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cached", action="store_true", help="compile nothing")
    parser.add_argument(
        "names",
        nargs="*",
        default=list(ARCHITECTURES),
        metavar="x86_64|aarch64|host|sanitize",
    )
    arguments = parser.parse_args()
    for name in arguments.names:
        built = build(HOST if name == "host" else name, compiling=not arguments.cached)
        if built is None:
            return NOT_CACHED
        print(f"{built}: {built.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
