"""`make fuzz`: the policy and the frame parsers of host and init. Every `make test` fuzzes them briefly.

    make fuzz FUZZ='[MINUTES] [TARGET …]'        (default: 10 minutes for each of them)

    raw      any bytes get a verdict
    scripts  scripts made by a grammar get a verdict
    plain    plain commands get the same verdict without the parser
    hostile  the host's other parsers of what a sandbox, an image, a workspace or a server sends
    frames   the host's frame decoder
    init     the init's parsers in C, with sanitizers: frames, and archives (as root); guided where there is clang. What
             reached new code is kept in tests/init/corpus, for the next run
    link     the host's side of a link against a hostile init in another process; prints how much the host grew and
             its longest stall, and fails if either is too much

The first finding stops the run; libFuzzer saves the input in a file here and prints its name.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import host

ROOT = Path(__file__).resolve().parents[2]
INIT = ROOT / "sandbox-images" / "init"
GUIDED = ("raw", "scripts", "plain", "hostile", "frames")
LIMITS = [
    "-rss_limit_mb=1500",
    "-timeout=30",
    "-max_len=4096",
]  # seconds by the clock: a verdict has its own bound
SEEDS = 500


def seeds(target: str) -> list[bytes]:
    """Inputs to begin with: commands of the corpus for `raw`, else random bytes."""
    if target != "raw":
        return [random.randbytes(random.randrange(20, 600)) for _ in range(SEEDS)]
    lines = [
        line
        for path in (ROOT / "tests/policy/corpus").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [
        str(json.loads(line)["command"]).encode("utf-8", "surrogatepass")
        for line in random.sample(lines, SEEDS)
    ]


def guided(target: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for number, seed in enumerate(seeds(target)):
            Path(directory, str(number)).write_bytes(seed)
        options = [
            *LIMITS,
            f"-max_total_time={int(seconds)}",
            "-print_final_stats=1",
            directory,
        ]
        if subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", target, *options]
        ).returncode:
            sys.exit(f"{target}: found something")


C_TARGETS = {
    "frame": ("frame.c", "ring.c"),
    "archive": ("archive.c", "tools.c", "search.c", "relay.c"),
}
"""tests/init/fuzz_NAME.c, and the parts of the init that it calls."""
SANITIZED = ("-g", "-O1", f"-I{INIT}")


def init(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        if not shutil.which("clang"):
            return unguided(Path(directory), seconds)
        for name in C_TARGETS if os.geteuid() == 0 else ("frame",):
            guided_init(name, Path(directory), seconds)
    return None


def guided_init(name: str, place: Path, seconds: float) -> None:
    program, found, kept = (
        place / name,
        place / f"{name}.found",
        ROOT / "tests/init/corpus" / name,
    )
    compiled("clang", "fuzzer,address,undefined", name, program)
    for directory in (found, kept):
        directory.mkdir(parents=True, exist_ok=True)
    quiet = ["-verbosity=0", "-print_final_stats=1", "-close_fd_mask=1"]
    fuzz = [
        program,
        f"-max_total_time={int(seconds)}",
        "-max_len=2048",
        *quiet,
        found,
        kept,
    ]
    merge = [program, "-merge=1", "-verbosity=0", kept, found]
    for command in (fuzz, merge):
        done = subprocess.run(
            command, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        if done.returncode:
            sys.exit(f"{done.stderr[-5000:]}\n{name}: found something")
        print(
            *(
                line
                for line in done.stderr.splitlines()
                if line.startswith("stat::number")
            ),
            sep="\n",
        )


def unguided(place: Path, seconds: float) -> None:
    program = place / "frame"
    compiled("gcc", "address,undefined", "frame", program, "-DSTANDALONE")
    until, runs = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        subprocess.run([program, "2000000"], check=True)
        runs += 2_000_000
    print(f"  {runs} rounds, nothing found")


def compiled(
    compiler: str, sanitizers: str, name: str, program: Path, *more: str
) -> None:
    sources = [
        ROOT / f"tests/init/fuzz_{name}.c",
        *(INIT / part for part in C_TARGETS[name]),
    ]
    subprocess.run(
        [
            compiler,
            *SANITIZED,
            f"-fsanitize={sanitizers}",
            *more,
            *sources,
            "-o",
            program,
        ],
        check=True,
    )


def main() -> None:
    minutes, *chosen = sys.argv[1:] or ["10"]
    others = {"init": init, "link": host.at_length}
    for target in chosen or [*GUIDED, *others]:
        print(f"{target}, {minutes} minutes", flush=True)
        seconds = float(minutes) * 60
        others[target](seconds) if target in others else guided(target, seconds)


if __name__ == "__main__":
    main()
