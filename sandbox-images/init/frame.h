/* The frames of the link, and nothing else: pure functions over bytes, fuzzed on their own. */
#ifndef BELLJAR_FRAME_H
#define BELLJAR_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION 1
#define FRAME_HEADER 16
#define FRAME_IN_MAX (8u << 20)
#define FRAME_OUT_MAX (2u << 20)
#define INPUT_MAX (1u << 20)
#define TOKEN_LENGTH 64

enum { STDIN = 0, STDOUT = 1, STDERR = 2, CONTROL = 3 };

enum {
    HELLO = 1, SPAWN, INPUT, CREDIT, SIGNAL, RESIZE, DEADLINE, KILL, READ, LIST, FORGET, PING, LEASE, SHUTDOWN, BACKGROUND,
    WELCOME = 65, STARTED, SPAWN_ERROR, OUTPUT, ENDED, INPUT_ACK, READ_REPLY, LIST_REPLY, PONG, ERROR, PIPE,
};

enum {
    FLAG_SHELL = 1, FLAG_PTY = 2, FLAG_COMBINED = 4, FLAG_STDIN = 8, FLAG_CONTROL = 16, FLAG_BACKGROUND = 32,
    FLAG_DEFAULT_ENV = 64, FLAG_DIRECT = 128, FLAGS_KNOWN = 255,
};

struct frame {
    uint32_t length;
    uint8_t type, stream;
    uint64_t id;
    const uint8_t *payload;
};

struct spawn_request {
    uint32_t flags, deadline_ms, grace_ms, ring_bytes;
    uint64_t credit;
    uint16_t rows, cols;
    uint32_t argc, envc, tag_length;
    const char *tag, *cwd, *strings; /* strings: argc + envc of them, each ended by NUL */
};

struct read_request {
    uint64_t from[2];
    uint32_t max_each, wait_ms;
    uint8_t tag; /* comes back with the answer: of several reads, the later may be answered first */
};

enum frame_status { FRAME_WHOLE, FRAME_PARTIAL, FRAME_MALFORMED };

/* Looks at the first frame in `bytes`. A malformed header is told before its payload has arrived. */
enum frame_status frame_parse(const uint8_t *bytes, size_t length, struct frame *frame);
bool frame_parse_spawn(const struct frame *frame, struct spawn_request *request);
void frame_parse_read(const struct frame *frame, struct read_request *request);

uint16_t get_u16(const uint8_t *bytes);
uint32_t get_u32(const uint8_t *bytes);
uint64_t get_u64(const uint8_t *bytes);
uint8_t *put_u32(uint8_t *bytes, uint32_t value);
uint8_t *put_u64(uint8_t *bytes, uint64_t value);
uint8_t *put_bytes(uint8_t *bytes, const void *data, size_t length);
uint8_t *put_header(uint8_t *bytes, uint32_t length, uint8_t type, uint8_t stream, uint64_t id);

#endif
