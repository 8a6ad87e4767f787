"""`make fuzz`: the policy and the frame parsers of host and init. Every `make test` fuzzes them briefly.

    make fuzz FUZZ='[MINUTES] [TARGET …]'        (default: 10 minutes for each of them)

    raw      any bytes get a verdict
    scripts  scripts made by a grammar get a verdict
    plain    plain commands get the same verdict without the parser
    hostile  the host's other parsers of what a sandbox, an image, a workspace or a server sends
    frames   the host's frame decoder
    init     the init's frame parser, in C, with sanitizers
    link     the host's side of a link against a hostile init in another process; prints how much the host grew and
             its longest stall, and fails if either is too much

The first finding stops the run; libFuzzer saves the input in a file here and prints its name.
"""

from __future__ import annotations

import json
import random
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
    lines = [line for path in (ROOT / "tests/policy/corpus").glob("*.jsonl") for line in path.read_text().splitlines()]
    return [str(json.loads(line)["command"]).encode("utf-8", "surrogatepass") for line in random.sample(lines, SEEDS)]


def guided(target: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for number, seed in enumerate(seeds(target)):
            Path(directory, str(number)).write_bytes(seed)
        options = [*LIMITS, f"-max_total_time={int(seconds)}", "-print_final_stats=1", directory]
        if subprocess.run([sys.executable, "-m", "tests.fuzz.guided", target, *options]).returncode:
            sys.exit(f"{target}: found something")


def init(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory, "fuzz")
        sources = [ROOT / "tests/init/fuzz_frame.c", INIT / "frame.c", INIT / "ring.c"]
        flags = ["-g", "-O1", "-DSTANDALONE", "-fsanitize=address,undefined", f"-I{INIT}"]
        subprocess.run(["gcc", *flags, *map(str, sources), "-o", str(target)], check=True)
        until, runs = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            subprocess.run([target, "2000000"], check=True)
            runs += 2_000_000
        print(f"  {runs} rounds, nothing found")


def main() -> None:
    minutes, *chosen = sys.argv[1:] or ["10"]
    others = {"init": init, "link": host.at_length}
    for target in chosen or [*GUIDED, *others]:
        print(f"{target}, {minutes} minutes", flush=True)
        seconds = float(minutes) * 60
        others[target](seconds) if target in others else guided(target, seconds)


if __name__ == "__main__":
    main()
