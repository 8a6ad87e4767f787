"""`make fuzz`: the frame parsers of both sides, at length. Briefly they are fuzzed by every `make test`.

    python -m tests.fuzz [MINUTES]        (default 10: half for the host's decoder, half for the init's)
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from belljar import frames
from belljar.frames import Decoder, FrameError, From

ROOT = Path(__file__).parent.parent
INIT = ROOT / "sandbox-images" / "init"
PARSERS = {
    From.ENDED: frames.parse_ended,
    From.READ_REPLY: frames.parse_read_reply,
    From.LIST_REPLY: frames.parse_list,
    From.SPAWN_ERROR: frames.parse_spawn_error,
    From.ERROR: frames.parse_error,
    From.HELLO: frames.parse_hello,
    From.STARTED: frames.parse_u32,
    From.INPUT_ACK: frames.parse_u64,
    From.PIPE: frames.parse_u64,
    From.PONG: frames.parse_u64,
}


def some_frame(dice: random.Random) -> bytes:
    kind = dice.choice([*From, dice.randrange(256)])
    payload = dice.randbytes(dice.choice([0, 4, 8, 72, 112, dice.randrange(2000)]))
    length = len(payload) if dice.random() < 0.9 else dice.randrange(1 << 32)
    stream, zero = dice.choice([0, 1, 2, 3, 9]), dice.random() < 0.02
    return struct.pack("<IBBHQ", length, kind, stream, zero, dice.randrange(9)) + payload


def decode_some(dice: random.Random) -> int:
    """Nothing but a FrameError may come of it, and no more bytes may come out than went in."""
    raw = b"".join(some_frame(dice) for _ in range(dice.randrange(1, 6)))
    decoder, out = Decoder(), 0
    try:
        while raw:
            step = dice.randrange(1, 400)
            for kind, _stream, _id, payload in decoder.feed(raw[:step]):
                out += len(payload)
                if kind in PARSERS:
                    PARSERS[From(kind)](payload)
            raw = raw[step:]
    except FrameError:
        pass
    assert out <= 6 * 2100
    return 1


def fuzz_host(seconds: float) -> None:
    seed, rounds, until = random.SystemRandom().randrange(1 << 32), 0, time.monotonic() + seconds
    dice = random.Random(seed)
    print(f"the host's decoder, seed {seed}")
    while time.monotonic() < until:
        rounds += decode_some(dice)
    print(f"  {rounds} rounds, nothing found")


def fuzz_init(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory, "fuzz")
        sources = [ROOT / "tests/init/fuzz_frame.c", INIT / "frame.c", INIT / "ring.c"]
        flags = ["-g", "-O1", "-DSTANDALONE", "-fsanitize=address,undefined", f"-I{INIT}"]
        subprocess.run(["gcc", *flags, *map(str, sources), "-o", str(target)], check=True)
        print("the init's parser and ring, with sanitizers")
        until, runs = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            subprocess.run([target, "2000000"], check=True)
            runs += 2_000_000
        print(f"  {runs} rounds, nothing found")


if __name__ == "__main__":
    half = float(sys.argv[1] if len(sys.argv) > 1 else 10) * 30
    fuzz_host(half)
    fuzz_init(half)
