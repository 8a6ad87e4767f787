"""Parts of the init, compiled as programs of their own: no PID 1 and no container is needed to test them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INIT = Path(__file__).parents[2] / "sandbox-images" / "init"
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-fsanitize=undefined",
    "-fsanitize-trap=undefined",
    f"-I{INIT}",
)


def tools(place: Path) -> Path:
    """The file tools: `tools get PATH`, `tools list PATH DEPTH` and so on."""
    return _compile(
        place,
        "tools",
        "tools_main(argc - 1, argv + 1)",
        "tools",
        "archive",
        "search",
        "relay",
    )


def relay(place: Path) -> Path:
    return _compile(place, "relay", "relay_main(argc, argv)", "relay")


def _compile(place: Path, name: str, call: str, *sources: str) -> Path:
    main, program = place / "main.c", place / name
    main.write_text(
        f'#include "{name}.h"\nint main(int argc, char **argv) {{ return {call}; }}\n'
    )
    compiler = [sys.executable, "-m", "ziglang", "cc", *FLAGS, "-o", program, main]
    subprocess.run(
        [*compiler, *(INIT / f"{source}.c" for source in sources)], check=True
    )
    return program
