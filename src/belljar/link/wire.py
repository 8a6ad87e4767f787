"""Generated from wire.toml by sandbox-images/init/wire.py: edit wire.toml and run wire.py."""

from enum import IntEnum

VERSION = 8
HEADER = 16
TO_INIT_MAX = 8388608
FROM_INIT_MAX = 2097152
INPUT_MAX = 1048576
CHUNK = 262144
OFFSET = 8
ENDED = 72
RING_MAX = 67108864
LIVE_MAX = 1024
RETAINED_MAX = 1024
PASSED_MAX = 4
TOKEN = 64
STDIN = 0
STDOUT = 1
STDERR = 2
CONTROL = 3


class To(IntEnum):
    HELLO = 1
    SPAWN = 2
    INPUT = 3
    CREDIT = 4
    SIGNAL = 5
    RESIZE = 6
    DEADLINE = 7
    KILL = 8
    READ = 9
    LIST = 10
    FORGET = 11
    PING = 12
    LEASE = 13
    SHUTDOWN = 14
    BACKGROUND = 15
    HEARTBEAT = 16
    STATE = 17
    TESTIFY = 18
    CLOCK = 19


class From(IntEnum):
    WELCOME = 65
    STARTED = 66
    SPAWN_ERROR = 67
    OUTPUT = 68
    ENDED = 69
    INPUT_ACK = 70
    READ_REPLY = 71
    LIST_REPLY = 72
    PONG = 73
    ERROR = 74
    PIPE = 75
    STATE_REPLY = 76
    TESTIMONY = 77


class Stage(IntEnum):
    REQUEST = 1
    CWD = 2
    EXEC = 3
    RESOURCES = 4
    DUPLICATE = 5
    USER = 6


class EndCause(IntEnum):
    EXITED = 1
    SIGNALLED = 2
    TIMEOUT = 3
    KILLED = 4
    OUT_OF_MEMORY = 5


class Doing(IntEnum):
    OTHER = 0
    WAITS = 1
    STOPPED = 2


class Flag:
    """Bits of a plain int, since the operators of an IntFlag cost more than a frame."""

    SHELL = 1
    PTY = 2
    COMBINED = 4
    STDIN = 8
    CONTROL = 16
    BACKGROUND = 32
    DEFAULT_ENV = 64
    DIRECT = 128
    USER = 256
    HELD = 512


FROM_INIT_BOUNDS = {
    65: (24, 24),
    66: (4, 4),
    67: (8, 264),
    68: (9, 262152),
    69: (72, 72),
    70: (8, 8),
    71: (116, 2097152),
    72: (4, 2097152),
    73: (8, 8),
    74: (4, 260),
    75: (8, 8),
    76: (24, 4120),
    77: (8, 262144),
}
"""Least and most bytes of each payload that an init may send, by kind."""
