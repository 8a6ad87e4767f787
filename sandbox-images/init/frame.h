/* Parses and writes the frames of the link. Pure functions over bytes, fuzzed separately. */
#ifndef BELLJAR_FRAME_H
#define BELLJAR_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

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
    uint8_t tag; /* copied into the answer: several reads may be answered in any order */
};

enum frame_status { FRAME_WHOLE, FRAME_PARTIAL, FRAME_MALFORMED };

/* Parses the first frame in `bytes`. A malformed header is detected before its payload has arrived. */
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
