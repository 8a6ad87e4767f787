"""An init that attacks the host: `python -m tests.fuzz.hostile_init SOCKET SEED ROUNDS`.

Each round is one connection. Its seed chooses the attack: random bytes, valid frames in the wrong state, answers
without a question, descriptors of every kind, floods of tiny frames, counts and lengths out of bounds. The init reads
the host's frames, since valid frames need the ids of commands.
"""

from __future__ import annotations

import array
import contextlib
import os
import random
import select
import socket
import struct
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

WIRE = tomllib.loads(
    (Path(__file__).resolve().parents[2] / "sandbox-images/init/wire.toml").read_text()
)
HEADER = struct.Struct("<IBBHQ")
TO = {name: row[0] for name, row in WIRE["to"].items()}
FROM = {name: row[0] for name, row in WIRE["from"].items()}
LONGEST = WIRE["sizes"]["from_init_max"]
SECONDS = 0.25  # length of one round


def frame(
    kind: str | int, id: int = 0, payload: bytes = b"", stream: int = 0, zero: int = 0
) -> bytes:
    code = FROM[kind] if isinstance(kind, str) else kind
    return HEADER.pack(len(payload), code, stream, zero, id) + payload


class Init:
    def __init__(self, connection: socket.socket, seed: int) -> None:
        self.connection, self.random = connection, random.Random(seed)
        self.ids: list[int] = [self.random.getrandbits(63)]
        self._heard = b""
        self._kept: list[object] = []
        self.starts = self.random.random() < 0.9
        self.credit: dict[tuple[int, int], int] = {}
        self.sent: dict[tuple[int, int], int] = {}
        self.until = time.monotonic() + SECONDS

    def send(self, data: bytes, descriptors: list[int] | None = None) -> None:
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            if descriptors
            else []
        )
        sent = self.connection.sendmsg([data], rights)
        self.connection.sendall(data[sent:])

    def listen(self) -> None:
        """Read the host's frames so far, and remember the ids in them."""
        while select.select([self.connection], [], [], 0)[0]:
            data = self.connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            self._heard += data
        while len(self._heard) >= HEADER.size:
            length, kind, stream, _, id = HEADER.unpack_from(self._heard)
            if len(self._heard) < HEADER.size + length:
                break
            payload = self._heard[HEADER.size : HEADER.size + length]
            self._heard = self._heard[HEADER.size + length :]
            if id and id not in self.ids:
                self.ids.append(id)
            self._note(kind, stream, id, payload)

    def _note(self, kind: int, stream: int, id: int, payload: bytes) -> None:
        if kind == TO["spawn"]:
            flags, _, _, _, credit = struct.unpack_from("<IIIIQ", payload)
            background, control = (
                flags & WIRE["flags"]["background"],
                flags & WIRE["flags"]["control"],
            )
            if self.starts:
                self.send(frame("started", id, struct.pack("<I", 7)))
            for number in () if background else (1, 2, 3) if control else (1, 2):
                self.credit[id, number] = credit
        elif kind == TO["credit"]:
            self.credit[id, stream] = struct.unpack("<Q", payload)[0]

    def greet(self) -> None:
        self.send(
            frame(
                "welcome",
                0,
                struct.pack(
                    "<IIQII", WIRE["version"], 1, self.random.getrandbits(64), 0, 7
                ),
            )
        )

    # Attacks within the protocol, as costly for the host as it allows.

    def _within_credit(self, most: int) -> list[tuple[int, int, int]]:
        """The (id, stream, bytes) that the host's credit allows now."""
        found = []
        for (id, stream), credit in self.credit.items():
            length = min(most, credit - self.sent.get((id, stream), 0))
            if length > 0:
                self.sent[id, stream] = self.sent.get((id, stream), 0) + length
                found.append((id, stream, length))
        return found

    def tiny_within_credit(self) -> None:
        """Frames of one byte, with the streams in turns."""
        allowed = self._within_credit(2000)
        for _ in range(2000):
            parts = [
                frame("output", id, bytes(8) + b"\0", stream)
                for id, stream, length in allowed
                if length > 0
            ]
            allowed = [(id, stream, length - 1) for id, stream, length in allowed]
            if not parts:
                return
            self.send(b"".join(parts))

    def large_within_credit(self) -> None:
        for id, stream, length in self._within_credit(WIRE["sizes"]["chunk"]):
            self.send(frame("output", id, bytes(8 + length), stream))

    def text_within_credit(self) -> None:
        """An endless text, also on the control stream."""
        for id, stream, length in self._within_credit(WIRE["sizes"]["chunk"]):
            self.send(frame("output", id, bytes(8) + b"s" * length, stream))

    # Attacks that break the protocol.

    def rubbish(self) -> None:
        self.send(self.random.randbytes(self.random.randrange(1, 5000)))

    def any_frame(self) -> None:
        """A frame of any kind, whatever the state of its command."""
        name, (_, least, most) = self.random.choice(list(WIRE["from"].items()))
        most = LONGEST if most == "max" else most
        length = self.random.choice(
            [least, least, most, self.random.randrange(least, min(most, 4096) + 1)]
        )
        payload = self.random.choice([bytes(length), self.random.randbytes(length)])
        self.send(
            frame(name, self.random.choice(self.ids), payload, self.random.randrange(4))
        )

    def likely_frame(self) -> None:
        id = self.random.choice(self.ids)
        self.send(
            self.random.choice(
                [
                    frame("started", id, struct.pack("<I", 3)),
                    frame("pong", 0, bytes(8)),
                    frame("error", id, struct.pack("<I", 2)),
                    frame(
                        "ended",
                        id,
                        struct.pack("<4I6Q2I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
                    ),
                    frame("input_ack", id, struct.pack("<Q", self.random.randrange(8))),
                    frame("list_reply", 0, struct.pack("<I", 0)),
                    frame("state_reply", id, bytes(24) + b"/" + bytes(4000)),
                    frame("spawn_error", id, bytes(8) + b"x" * 200),
                    frame("read_reply", id, bytes(116), self.random.randrange(256)),
                ]
            )
        )

    def tiny_output(self) -> None:
        ids = self.ids[1:] or self.ids
        parts = [
            frame(
                "output",
                self.random.choice(ids),
                bytes(8) + b"x",
                self.random.choice((1, 2)),
            )
            for _ in range(2000)
        ]
        self.send(b"".join(parts))

    def large_output(self) -> None:
        size = WIRE["sizes"]["chunk"]
        self.send(
            frame(
                "output",
                self.random.choice(self.ids),
                bytes(8 + size),
                self.random.choice((1, 2, 3)),
            )
        )

    def control_flood(self) -> None:
        for id in self.ids[1:]:
            self.send(
                frame(
                    "output",
                    id,
                    bytes(8) + self.random.choice([b"\0", b"x", b"s"]) * 60000,
                    3,
                )
            )

    def huge_counts(self) -> None:
        entry = bytes(40) + bytes(72) + bytes(4)
        lengths = struct.pack("<QQIQQII", 0, 1 << 63, 1 << 20, 0, 0, 0, 0)
        self.send(self.random.choice([
            frame("list_reply", 0, struct.pack("<I", 0xFFFFFFFF) + entry * 100),
            frame("list_reply", 0, struct.pack("<I", LONGEST // len(entry) - 1) + entry * (LONGEST // len(entry) - 1)),
            frame("read_reply", self.random.choice(self.ids), lengths + bytes(LONGEST - 200)),
            HEADER.pack(0xFFFFFFFF, FROM["output"], 1, 0, self.random.choice(self.ids)),
        ]))  # fmt: skip

    def drip(self) -> None:
        for byte in frame("output", self.random.choice(self.ids), bytes(200), 1):
            self.send(bytes([byte]))

    def unanswered(self) -> None:
        self.send(
            frame(
                self.random.choice(["pong", "error"]),
                self.random.choice(self.ids),
                bytes(8),
            )
            * 500
        )

    def pipes(self) -> None:
        """Descriptors of every kind, with a pipe frame or without one."""
        descriptors = [
            self._descriptor() for _ in range(self.random.choice([1, 1, 4, 40]))
        ]
        id, stream = self.random.choice(self.ids), self.random.randrange(4)
        offset = struct.pack("<Q", self.random.choice([0, 0, 0, 1 << 40]))
        data = self.random.choice(
            [frame("pipe", id, offset, stream), b"x", frame("pong", 0, bytes(8))]
        )
        self.send(data, descriptors)
        for each in descriptors:
            os.close(each)

    def _descriptor(self) -> int:
        kind = self.random.randrange(8)
        if kind < 3:
            reading, writing = os.pipe()
            os.set_blocking(reading, True)
            os.set_blocking(writing, True)
            with contextlib.suppress(OSError):
                os.write(writing, b"y" * self.random.choice([1, 60000]))
            self._kept.append(
                os.fdopen(writing if kind else reading, "wb" if kind else "rb", 0)
            )
            return reading if kind else writing
        if kind == 3:
            return os.open("/dev/zero", os.O_RDWR)
        if kind == 4:
            return os.open(tempfile.gettempdir(), os.O_RDONLY)
        if kind == 5:
            return os.eventfd(0)
        return self._lingering()

    def _lingering(self) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(listener.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3))
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(bytes(1 << 18))
        self._kept.append(listener)
        return client.detach()

    def round(self) -> None:
        acts: list[Callable[[], None]] = [
            self.rubbish, self.any_frame, self.likely_frame, self.tiny_output, self.large_output, self.control_flood,
            self.huge_counts, self.drip, self.unanswered, self.pipes,
        ]  # fmt: skip
        if self.random.random() < 0.95:
            self.greet()
        time.sleep(self.random.choice([0, 0.01]))
        self.listen()
        if self.random.random() < 0.5:
            acts = [
                self.tiny_within_credit,
                self.large_within_credit,
                self.text_within_credit,
            ]
        favourite = self.random.choice(acts)
        while time.monotonic() < self.until:
            self.listen()
            time.sleep(0.0005)  # an attack may have nothing to send
            act = favourite if self.random.random() < 0.8 else self.random.choice(acts)
            act()


def main() -> None:
    path, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for number in range(rounds):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.settimeout(5)
            with contextlib.suppress(OSError, TimeoutError):
                Init(connection, seed + number).round()


if __name__ == "__main__":
    main()
