"""`make mutants`: do the tests notice a change in code that holds a protection? By hand, as root; about an hour.

    make mutants MUTANTS='[COUNT] [FOLDER or MODULE …] [--seed WORD]'      (default: 12 in each folder of FOLDERS)

One mutant is one small change: a check that is not called, a condition turned round (operators.py). For each, the
tests of its folder run that reach the changed line; if none fails, all of the folder. What no test noticed is printed
as a diff: a test is missing, or the change changes nothing. Below 90 % in a folder the exit status is 1.

Nobody knows what changed code does. So it runs in a copy of the checkout, in namespaces of its own for processes and
mounts: it can kill only its own, the machine is read-only, and the only engine is oci. Tests that need Docker are not
run, nor those that fail there without any change, which are named.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "audit",
    "link",
    "network",
    "runs_later",
    "sandbox",
    "session",
    "staged",
    "tools",
    "workspace",
)
COUNT = 12
NOTICED = 90
"""Percent, for each folder."""
NEEDED = ("attrs", "parso", "stevedore")
COSMIC_RAY = "cosmic-ray>=8.7,<9"
LEFT_OUT = shutil.ignore_patterns(
    ".venv",
    ".git",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".coverage*",
    "dist",
    "build",
)
SLACK = 60
"""Seconds that a run may take beyond three times what it took without a change: then it hangs."""
BESIDE = ("-n", str(os.cpu_count() or 1), "--dist", "loadfile")
MANY = 40
"""More tests than this run side by side."""

SHUT_IN = """
set -e
mount --bind "$PLACE" "$PLACE"
if [ -d "$IMAGES" ]; then mount --bind "$IMAGES" "$IMAGES"; fi
mount -o remount,bind,ro /
mount --bind "$PLACE/tmp" /tmp
mount -t tmpfs -o mode=0755 run /run
cd "$PLACE/checkout"
"$@"
"""
"""PID 1 of the namespace is this shell, which reaps what is left behind."""


@dataclass
class Run:
    failed: bool
    seconds: float
    output: str


@dataclass
class Checkout:
    """A copy of this checkout, where code may be changed and its tests run."""

    place: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=LEFT_OUT)
        for name in ("tmp", "home"):
            (self.place / name).mkdir()
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("BELLJAR", "DOCKER"))
        }
        self.environment = inherited | {
            "PLACE": str(self.place),
            "IMAGES": os.environ.get("BELLJAR_IMAGES") or str(state / "belljar/images"),
            "BELLJAR_IMAGES": os.environ.get("BELLJAR_IMAGES")
            or str(state / "belljar/images"),
            "BELLJAR_ENGINE": "oci",
            "HOME": str(self.place / "home"),
            "PYTHONPATH": str(self.root / "src"),
        }

    @property
    def root(self) -> Path:
        return self.place / "checkout"

    def test(self, *arguments: str, seconds: float | None = None) -> Run:
        """Run pytest, shut in. What takes longer than `seconds` has failed."""
        shut_in = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ]
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not soak",
            *arguments,
        ]
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [*shut_in, "bash", "-c", SHUT_IN, "bash", *pytest],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait() or 1
            output.seek(0)
            return Run(status != 0, time.monotonic() - began, output.read())

    @contextmanager
    def changed(self, mutant: dict[str, Any]) -> Iterator[None]:
        module = self.root / mutant["module"]
        before = module.read_text()
        try:
            self._write(module, mutant["text"])
            yield
        finally:
            self._write(module, before)

    def _write(self, module: Path, text: str) -> None:
        module.write_text(text)
        for compiled in module.parent.glob(
            f"__pycache__/{module.stem}.*.pyc"
        ):  # same size, same second: it would stay
            compiled.unlink()


@dataclass
class Folder:
    """One folder of the source, and which of its tests reach which line."""

    name: str
    checkout: Checkout
    seconds: float = 0
    reached: CoverageData = field(init=False)
    left_out: list[str] = field(default_factory=list)
    """Tests that fail without any change."""

    @property
    def tests(self) -> str:
        return f"tests/{self.name}"

    def learn(self) -> None:
        run = self.checkout.test(
            self.tests, *BESIDE, "--cov", "--cov-context=test", "--cov-report="
        )
        self.left_out = re.findall(r"^(?:FAILED|ERROR) (\S+)", run.output, re.MULTILINE)
        if run.failed and not self.left_out:
            sys.exit(f"{run.output[-5000:]}\n{self.tests} cannot be run")
        for test in self.left_out:
            print(f"  fails without any change: {test}")
        self.seconds = run.seconds
        self.reached = CoverageData(str(self.checkout.root / ".coverage"))
        self.reached.read()

    def tests_of(self, module: str, line: int) -> list[str]:
        """The tests that reach a line, by its own name; none if only the import does."""
        contexts = self.reached.contexts_by_lineno(
            str(self.checkout.root / module)
        ).get(line, [])
        return sorted(
            {context.rpartition("|")[0] for context in contexts if context}
            - {*self.left_out}
        )

    def notices(self, mutant: dict[str, Any]) -> bool:
        limit = 3 * self.seconds + SLACK
        with self.checkout.changed(mutant):
            chosen = self.tests_of(mutant["module"], mutant["line"])
            if chosen and self._run(chosen, limit).failed:
                return True
            return self._run([self.tests], limit).failed

    def _run(self, tests: list[str], limit: float) -> Run:
        beside = BESIDE if len(tests) > MANY or tests == [self.tests] else ()
        left_out = [f"--deselect={test}" for test in self.left_out]
        return self.checkout.test("-x", *beside, *left_out, *tests, seconds=limit)


def operators() -> Path:
    """A Python that has cosmic-ray. Of it only the operators are used, so most of what it requires is left out."""
    place = Path(sys.prefix, ".belljar", "mutants")
    python = place / "bin/python"
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip = [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ]
        subprocess.run([*pip, "-q", *NEEDED], check=True)
        subprocess.run([*pip, "-q", "--no-deps", COSMIC_RAY], check=True)
        (place / "complete").touch()
    return python


def make(count: int, seed: str, modules: list[str]) -> list[dict[str, Any]]:
    command = [
        operators(),
        ROOT / "tests/mutants/operators.py",
        str(count),
        seed,
        *modules,
    ]
    return json.loads(
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    )


def modules_of(chosen: str) -> list[str]:
    place = ROOT / "src/belljar" / chosen
    found = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in found]


def try_all(checkout: Checkout, chosen: str, count: int, seed: str) -> Counter[bool]:
    folder = Folder(
        chosen.rpartition("/")[0] if chosen.endswith(".py") else chosen, checkout
    )
    folder.learn()
    noticed: Counter[bool] = Counter()
    for mutant in make(count, seed, modules_of(chosen)):
        seen = folder.notices(mutant)
        noticed[seen] += 1
        print(
            "+" if seen else f"\nnot noticed: {mutant['module']}:{mutant['line']}",
            end="",
            flush=True,
        )
        if not seen:
            print("", *mutant["diff"], sep="\n  ", flush=True)
    print()
    return noticed


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--seed", default=f"{random.SystemRandom().getrandbits(32):x}")
    parser.add_argument("chosen", nargs="*")
    options = parser.parse_args()
    count = (
        int(options.chosen.pop(0))
        if options.chosen and options.chosen[0].isdigit()
        else COUNT
    )
    if os.geteuid() != 0:
        sys.exit("make mutants: only root can shut changed code in")
    print(f"--seed {options.seed}", flush=True)
    results = {}
    with tempfile.TemporaryDirectory(
        prefix="belljar-mutants-", dir="/var/tmp"
    ) as place:
        checkout = Checkout(Path(place))
        for chosen in options.chosen or FOLDERS:
            print(chosen, flush=True)
            results[chosen] = try_all(checkout, chosen, count, options.seed)
    shares = {
        chosen: 100 * noticed[True] // max(noticed.total(), 1)
        for chosen, noticed in results.items()
    }
    for chosen, noticed in results.items():
        print(
            f"{chosen:32}{noticed[True]:4} of {noticed.total():4}{shares[chosen]:6} %"
        )
    sys.exit(min(shares.values()) < NOTICED)


if __name__ == "__main__":
    main()
