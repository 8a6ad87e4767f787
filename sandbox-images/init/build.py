"""Builds the init for both architectures, and the program `belljar`, with the compiler `ziglang` from PyPI.

By hand: `python sandbox-images/init/build.py [x86_64|aarch64|host|sanitize]…` writes to share/belljar of the
environment it runs in. As a hatchling hook it runs whenever a wheel is built: BELLJAR_WHEEL says for which machine, by
default this one; in that for `any`, and in a checkout before `make`, `belljar` is a script. Binaries are kept
in the user's cache by a digest of their sources, flags and compiler, so another checkout of the same sources needs no
compiler. A cache that others could have written to is not used.
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
PACKAGE = HERE.parent.parent / "src" / "belljar"
ANCESTRY = PACKAGE / "ancestry.py"
CLIENT = PACKAGE / "surfaces" / "local" / "client.c"
SCRIPT = HERE.parent / "package" / "belljar"
LOCK = HERE.parent / "setup" / "lock" / "compiler.txt"
OUTPUT = Path(sys.prefix, "share", "belljar")
ARCHITECTURES = ("x86_64", "aarch64")
HOST = "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
MACHINE = (
    platform.machine().replace("arm64", "aarch64") if sys.platform == "linux" else "any"
)
LIMIT = 150_000  # bytes
TAGS = "py3-none-manylinux_2_17_{0}.musllinux_1_1_{0}"
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


def sources(program: str = "init") -> list[Path]:
    return [CLIENT] if program == "client" else sorted(HERE.glob("*.c"))


def _headers(program: str) -> list[Path]:
    return [] if program == "client" else [*HERE.glob("*.h")]


def _digest(flags: list[str], program: str = "init") -> str:
    digest = hashlib.sha256(repr([*flags, *_locked_compiler()]).encode())
    for path in sorted([*sources(program), *_headers(program)]):
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


def _cached(name: str, flags: list[str], program: str) -> Path | None:
    """The binary's path in the cache. None if others could write there (with sudo: the caller); it becomes PID 1."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(home, "belljar", "init", _digest(flags, program), name)
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
    flags: list[str],
    target: Path,
    environment: dict[str, str] | None = None,
    program: str = "init",
) -> None:
    words = [sys.executable, "-m", "ziglang", "cc", *flags]
    with _unfinished(target) as name:
        subprocess.run(
            [*words, "-o", name, *map(str, sources(program))],
            check=True,
            env=environment,
        )


def _compile_without_cache(
    flags: list[str], target: Path, program: str = "init"
) -> None:
    with tempfile.TemporaryDirectory() as fresh:
        places = {"ZIG_GLOBAL_CACHE_DIR": fresh, "ZIG_LOCAL_CACHE_DIR": fresh}
        _compile(flags, target, {**os.environ, **places}, program)


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
    architecture: str,
    output: Path = OUTPUT,
    *,
    compiling: bool = True,
    program: str = "init",
) -> Path | None:
    """Returns the path of the binary in `output`; None: it is not cached and must not be compiled."""
    flags = _flags(architecture)
    target = output / f"belljar-{program}-{architecture}"
    cached = _cached(target.name, flags, program)
    made = cached or target
    if cached is None or not cached.exists():
        if not compiling:
            return None
        compiler = _compile if cached else _compile_without_cache
        compiler(flags, made, program=program)
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
            scripts = build_data["shared_scripts"]
            if (
                version == "editable"
            ):  # its programs are made by `make`, its recipes are found in the checkout
                scripts[str(SCRIPT)] = "belljar"
                return
            machine = os.environ.get("BELLJAR_WHEEL", MACHINE)
            if machine in ARCHITECTURES:
                client = build(machine, Path(self.directory), program="client")
                scripts[str(client)] = "belljar"
                build_data["tag"] = TAGS.format(machine)
            else:
                scripts[str(SCRIPT)] = "belljar"
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
            made = [
                f"belljar-{program}-{architecture}"
                for program in ("init", "client")
                for architecture in ARCHITECTURES
            ]
            for name in (*made, "policies.json"):
                Path(self.directory, name).unlink(missing_ok=True)


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
        machine = HOST if name == "host" else name
        for program in ("init",) if name == "sanitize" else ("init", "client"):
            built = build(machine, compiling=not arguments.cached, program=program)
            if built is None:
                return NOT_CACHED
            print(f"{built}: {built.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
