"""The steps. Each first checks whether there is anything to do, and reports only then."""

from __future__ import annotations

import compileall
import os
import platform
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import engines
from board import Report, SetupError
from checkout import Checkout, lock_file, locked_count, this_python
from reasons import AGAIN

PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--progress-bar", "off", "--no-deps",
       "--root-user-action", "ignore"]  # fmt: skip
LOCKED = ["--require-hashes", "--only-binary", ":all:"]
# Settings of a user's pip that would send packages elsewhere; indexes and certificates are left as they are.
PIP_SETTINGS = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONNOUSERSITE": "1"}
INIT = "sandbox-images/init/build.py"
INSTALLED = "lib/python*/site-packages/*.dist-info"
COMPILED = 1100  # objects: its C library, where zig has compiled nothing yet, and ours
INIT_NEEDS_COMPILER = 3  # build.py's exit status if the binary is not in the cache


def environment(checkout: Checkout, report: Report) -> None:
    ingredients = (checkout.venv, this_python())
    if checkout.done("environment", *ingredients):
        return
    if checkout.foreign:
        if checkout.attempt([checkout.python, "-m", "pip", "--version"])[0]:
            raise SetupError(
                f"{checkout.venv} exists and is no virtual environment with pip",
                "choose another with VENV=",
            )
    else:
        another = (checkout.venv / "bin").exists()
        report(None, "this is another Python: making its virtual environment anew" if another else
               "making a virtual environment")  # fmt: skip
        _venv_module(checkout, report)
        checkout.begun("environment")
        checkout.clear()
        checkout.run(
            [sys.executable, "-m", "venv", checkout.venv],
            "making the virtual environment",
        )
    checkout.ended("environment", *ingredients)


def _venv_module(checkout: Checkout, report: Report) -> None:
    """Installs Debian's venv package if this Python lacks it."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        package = f"python3.{sys.version_info.minor}-venv"
        engines.apt_install(
            checkout, [package], report, "this Python cannot make virtual environments"
        )


def packages(checkout: Checkout, kind: str, report: Report) -> None:
    if not checkout.done("test", lock_file("test")):  # that set includes all others
        _install_locked(checkout, kind, report)
    ingredients = (checkout.root, checkout.root / "pyproject.toml", checkout.venv)
    if not checkout.done("package", *ingredients):
        report(0.95, "belljar itself")
        checkout.begun("package")
        editable = ["--no-build-isolation", "--no-index", "-e", str(checkout.root)]
        checkout.run(
            [checkout.python, *PIP, *editable],
            "installing belljar",
            environment=PIP_SETTINGS,
        )
        checkout.ended("package", *ingredients)
    # With PYTHONDONTWRITEBYTECODE set, Python would otherwise compile every module at each start of the command line.
    with suppress(OSError):
        compileall.compile_dir(checkout.root / "src/belljar", quiet=2)


def compiler(checkout: Checkout, report: Report) -> None:
    if not checkout.done("test", lock_file("test")):
        _install_locked(checkout, "compiler", report)


def _install_locked(checkout: Checkout, kind: str, report: Report) -> None:
    locked = lock_file(kind)
    if checkout.done(kind, locked):
        return
    report(0.0, "reading the lock file")
    # An interrupted install may have left half a package, which pip would neither use nor replace.
    again = ["--ignore-installed"] if checkout.begun(kind) else []
    command = [checkout.python, *PIP, *LOCKED, *again, "-r", locked]
    on_line = _pip_progress(
        report, locked_count(kind), lambda: len(list(checkout.venv.glob(INSTALLED)))
    )
    checkout.run(
        command, "installing Python packages", on_line, environment=PIP_SETTINGS
    )
    checkout.ended(kind, locked)


def _pip_progress(
    report: Report, total: int, installed: Callable[[], int]
) -> Callable[[str], None]:
    seen = 0

    def on_line(line: str) -> None:
        nonlocal seen
        if line.startswith("Collecting "):
            seen += 1
            report(min(0.7, 0.7 * seen / total), f"downloading {line.split()[1]}")
        elif line.startswith("Installing collected"):
            report(
                0.75, "installing", lambda: 0.7 + 0.25 * min(1.0, installed() / total)
            )

    return on_line


def init(checkout: Checkout, report: Report) -> None:
    """Gets the static program that is PID 1 in every sandbox from the cache, or compiles it."""
    sources = sorted((checkout.root / "sandbox-images/init").glob("*.[ch]"))
    client = checkout.root / "src/belljar/surfaces/local/client.c"
    ingredients = (*sources, client, checkout.root / INIT, lock_file("compiler"))
    built = all(_built(checkout, program) for program in ("init", "client"))
    if not (checkout.done("init", *ingredients) and built):
        _build_init(checkout, ingredients, report)
    _install_client(checkout)


def _built(checkout: Checkout, program: str) -> list[Path]:
    return [*(checkout.venv / "share/belljar").glob(f"belljar-{program}-*")]


def _install_client(checkout: Checkout) -> None:
    """Instead of the script that pip has installed."""
    machine = "aarch64" if platform.machine() == "arm64" else platform.machine()
    client = checkout.venv / f"share/belljar/belljar-client-{machine}"
    target = checkout.venv / "bin/belljar"
    if not target.exists() or target.read_bytes() != client.read_bytes():
        new = target.with_name(".belljar-new")
        shutil.copyfile(client, new)
        new.chmod(0o755)
        new.replace(target)


def _build_init(
    checkout: Checkout, ingredients: tuple[Path, ...], report: Report
) -> None:
    checkout.begun("init")
    build = [checkout.python, checkout.root / INIT, "host"]
    status, _ = checkout.attempt([*build, "--cached"])
    if status == INIT_NEEDS_COMPILER:
        report(0.0, "fetching the C compiler")
        compiler(checkout, report)
        before = _compiled()
        gauge: Callable[[], float] = lambda: (_compiled() - before) / COMPILED  # noqa: E731
        report(0.0, "compiling PID 1 of the sandboxes and its C library", gauge)
        checkout.run(build, "compiling the init")
    elif status:
        checkout.run(build, "preparing the init")
    checkout.ended("init", *ingredients)


def _compiled() -> int:
    """How many objects are in zig's cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "zig")
    try:
        return len(
            os.listdir(Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or usual, "o"))
        )
    except OSError:
        return 0


def policies(checkout: Checkout, report: Report) -> None:
    """Parses the shipped policies in advance: Belljar works without it, but starts more slowly."""
    ingredients = (
        *sorted((checkout.root / "policies").rglob("*.toml")),
        checkout.root / "src/belljar/tables.py",
    )
    if (
        checkout.done("policies", *ingredients)
        and (checkout.venv / "share/belljar/policies.json").exists()
    ):
        return
    report(None, "parsing the policies")
    checkout.begun("policies")
    checkout.run(
        [checkout.python, "-m", "belljar.tables", checkout.root / "policies"],
        "parsing the policies",
    )
    checkout.ended("policies", *ingredients)


def engine(checkout: Checkout, report: Report, *, daemon: bool) -> None:
    engines.ensure(checkout, report, daemon=daemon)


def image(checkout: Checkout, report: Report) -> None:
    """Has belljar build the base image, which reports its progress; an existing image is left alone."""
    command = [checkout.venv / "bin/belljar", "images", "build", "base"]
    settings = {"BELLJAR_PROGRESS": "lines"}

    def on_line(line: str) -> None:
        percent, _, text = line.partition("% ")
        if percent.strip().isdigit():
            report(int(percent) / 100, text)
        elif line.startswith("… "):
            report(report.fraction, line[2:])

    status, last = checkout.attempt(command, on_line, environment=settings)
    if (
        status
        and "mmdebstrap" in "".join(last)
        and engines.may_install()
        and not shutil.which("mmdebstrap")
    ):
        engines.apt_install(
            checkout,
            engines.BOOTSTRAP,
            report,
            "the base image is made with mmdebstrap",
        )
        status, last = checkout.attempt(command, on_line, environment=settings)
    if status:
        error = next(
            (line for line in reversed(last) if line.startswith("belljar: ")),
            last[-1] if last else "",
        )
        reason = f"building the base image failed: {error.removeprefix('belljar: ')}"
        raise SetupError(reason, f"put that right, then {AGAIN}", str(checkout.log))
