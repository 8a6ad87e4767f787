/* Generated from wire.toml by sandbox-images/init/wire.py: edit wire.toml and run wire.py. */
/* clang-format off */
#ifndef BELLJAR_WIRE_H
#define BELLJAR_WIRE_H

#define PROTOCOL_VERSION 8
#define WIRE_HEADER 16u
#define WIRE_TO_INIT_MAX 8388608u
#define WIRE_FROM_INIT_MAX 2097152u
#define WIRE_INPUT_MAX 1048576u
#define WIRE_CHUNK 262144u
#define WIRE_OFFSET 8u
#define WIRE_ENDED 72u
#define WIRE_RING_MAX 67108864u
#define WIRE_LIVE_MAX 1024u
#define WIRE_RETAINED_MAX 1024u
#define WIRE_PASSED_MAX 4u
#define WIRE_TOKEN 64u

enum {
    STDIN = 0,
    STDOUT = 1,
    STDERR = 2,
    CONTROL = 3,
};

enum {
    FLAG_SHELL = 1,
    FLAG_PTY = 2,
    FLAG_COMBINED = 4,
    FLAG_STDIN = 8,
    FLAG_CONTROL = 16,
    FLAG_BACKGROUND = 32,
    FLAG_DEFAULT_ENV = 64,
    FLAG_DIRECT = 128,
    FLAG_USER = 256,
    FLAG_HELD = 512,
};

enum stage {
    STAGE_REQUEST = 1,
    STAGE_CWD = 2,
    STAGE_EXEC = 3,
    STAGE_RESOURCES = 4,
    STAGE_DUPLICATE = 5,
    STAGE_USER = 6,
};

enum cause {
    EXITED = 1,
    SIGNALLED = 2,
    TIMEOUT = 3,
    KILLED = 4,
    OUT_OF_MEMORY = 5,
};

enum {
    DOES_OTHER = 0,
    DOES_WAITS = 1,
    DOES_STOPPED = 2,
};

#define FLAGS_KNOWN 1023u

enum {
    HELLO = 1,
    SPAWN = 2,
    INPUT = 3,
    CREDIT = 4,
    SIGNAL = 5,
    RESIZE = 6,
    DEADLINE = 7,
    KILL = 8,
    READ = 9,
    LIST = 10,
    FORGET = 11,
    PING = 12,
    LEASE = 13,
    SHUTDOWN = 14,
    BACKGROUND = 15,
    HEARTBEAT = 16,
    STATE = 17,
    TESTIFY = 18,
    CLOCK = 19,
};

enum {
    WELCOME = 65,
    STARTED = 66,
    SPAWN_ERROR = 67,
    OUTPUT = 68,
    ENDED = 69,
    INPUT_ACK = 70,
    READ_REPLY = 71,
    LIST_REPLY = 72,
    PONG = 73,
    ERROR = 74,
    PIPE = 75,
    STATE_REPLY = 76,
    TESTIMONY = 77,
};

/* The bounds of each payload that the host may send, by kind. */
#define TO_INIT_BOUNDS \
    [HELLO] = {4, 68}, \
    [SPAWN] = {41, 8388608}, \
    [INPUT] = {0, 1048576}, \
    [CREDIT] = {8, 8}, \
    [SIGNAL] = {4, 4}, \
    [RESIZE] = {4, 4}, \
    [DEADLINE] = {8, 8}, \
    [KILL] = {4, 4}, \
    [READ] = {24, 24}, \
    [LIST] = {0, 0}, \
    [FORGET] = {0, 0}, \
    [PING] = {8, 8}, \
    [LEASE] = {4, 4}, \
    [SHUTDOWN] = {0, 0}, \
    [BACKGROUND] = {20, 20}, \
    [HEARTBEAT] = {0, 0}, \
    [STATE] = {0, 0}, \
    [TESTIFY] = {0, 8192}, \
    [CLOCK] = {4, 4}, \

#endif
