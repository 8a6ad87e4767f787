"""Builds the init for both architectures, with no compiler on the machine but `ziglang` from PyPI.

By hand: `python sandbox-images/init/build.py [x86_64|aarch64|host|sanitize]…`. As a hatchling hook: whenever a wheel is
built or installed in editable mode. What is up to date, by a hash of sources and flags, is left alone.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent.parent / "src" / "belljar" / "_init"
ARCHITECTURES = ("x86_64", "aarch64")
HOST = "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
LIMIT = 150_000  # bytes

FLAGS = [
    "-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wstrict-prototypes",
    "-static", "-fPIE", "-pie", "-fstack-protector-strong", "-fno-delete-null-pointer-checks",
    "-ftrivial-auto-var-init=zero", "-fno-sanitize=all", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
]  # fmt: skip
STRIP = ["-s"]
SANITIZE = [
    "-std=gnu11", "-O1", "-g", "-static", "-Wall", "-Wextra", "-fsanitize=undefined", "-fsanitize-trap=undefined",
]  # fmt: skip


def sources() -> list[Path]:
    return sorted(HERE.glob("*.c"))


def _stamp(flags: list[str]) -> str:
    digest = hashlib.sha256(repr(flags).encode())
    for path in sorted([*sources(), *HERE.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _compile(flags: list[str], target: Path) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    os.close(handle)
    unfinished = Path(name)
    try:
        subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags, "-o", name, *map(str, sources())], check=True)
        unfinished.chmod(0o755)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def build(architecture: str) -> Path:
    target = OUTPUT / f"belljar-init-{architecture}"
    sanitize = architecture == "sanitize"
    flags = [
        "-target",
        f"{'x86_64' if sanitize else architecture}-linux-musl",
        *(SANITIZE if sanitize else FLAGS + STRIP),
    ]
    stamp, stamp_file = _stamp(flags), OUTPUT / f".{target.name}.stamp"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if target.exists() and stamp_file.exists() and stamp_file.read_text() == stamp:
        return target
    _compile(flags, target)
    if not sanitize and target.stat().st_size >= LIMIT:
        raise SystemExit(f"{target} is {target.stat().st_size} bytes: over the limit of {LIMIT}")
    stamp_file.write_text(stamp)
    return target


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, without hatchling
    pass
else:

    class InitBuildHook(BuildHookInterface):  # type: ignore[type-arg]
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            # A checkout needs its own machine's; a libc for the other costs a fresh machine half a minute more.
            for architecture in [HOST] if version == "editable" else ARCHITECTURES:
                build(architecture)


if __name__ == "__main__":
    for name in sys.argv[1:] or ARCHITECTURES:
        built = build(HOST if name == "host" else name)
        print(f"{built}: {built.stat().st_size} bytes")
