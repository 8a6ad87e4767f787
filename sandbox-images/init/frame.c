#include "frame.h"

#include <string.h>

#define SPAWN_FIXED 40

static const struct {
    uint32_t least, most;
} bounds[] = {TO_INIT_BOUNDS};

uint16_t get_u16(const uint8_t *b) { return (uint16_t)(b[0] | b[1] << 8); }

uint32_t get_u32(const uint8_t *b) { return get_u16(b) | (uint32_t)get_u16(b + 2) << 16; }

uint64_t get_u64(const uint8_t *b) { return get_u32(b) | (uint64_t)get_u32(b + 4) << 32; }

uint8_t *put_u32(uint8_t *b, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        b[i] = (uint8_t)(value >> 8 * i);
    return b + 4;
}

uint8_t *put_u64(uint8_t *b, uint64_t value) { return put_u32(put_u32(b, (uint32_t)value), (uint32_t)(value >> 32)); }

uint8_t *put_bytes(uint8_t *b, const void *data, size_t length)
{
    if (length)
        memcpy(b, data, length);
    return b + length;
}

uint8_t *put_header(uint8_t *b, uint32_t length, uint8_t type, uint8_t stream, uint64_t id)
{
    b = put_u32(b, length);
    *b++ = type;
    *b++ = stream;
    *b++ = 0;
    *b++ = 0;
    return put_u64(b, id);
}

enum frame_status frame_parse(const uint8_t *bytes, size_t length, struct frame *frame)
{
    if (length < WIRE_HEADER)
        return FRAME_PARTIAL;
    *frame = (struct frame){
        .length = get_u32(bytes),
        .type = bytes[4],
        .stream = bytes[5],
        .id = get_u64(bytes + 8),
        .payload = bytes + WIRE_HEADER,
    };
    if (get_u16(bytes + 6) != 0 || frame->type < HELLO || frame->type >= sizeof bounds / sizeof *bounds)
        return FRAME_MALFORMED;
    if (frame->length < bounds[frame->type].least || frame->length > bounds[frame->type].most)
        return FRAME_MALFORMED;
    if (frame->type == INPUT && frame->stream != STDIN && frame->stream != CONTROL)
        return FRAME_MALFORMED;
    return length - WIRE_HEADER < frame->length ? FRAME_PARTIAL : FRAME_WHOLE;
}

bool frame_parse_spawn(const struct frame *frame, struct spawn_request *request)
{
    const uint8_t *b = frame->payload;
    *request = (struct spawn_request){
        .flags = get_u32(b),
        .deadline_ms = get_u32(b + 4),
        .grace_ms = get_u32(b + 8),
        .ring_bytes = get_u32(b + 12),
        .credit = get_u64(b + 16),
        .rows = get_u16(b + 24),
        .cols = get_u16(b + 26),
        .argc = get_u32(b + 28),
        .envc = get_u32(b + 32),
        .tag_length = get_u32(b + 36),
        .tag = (const char *)b + SPAWN_FIXED,
    };
    size_t left = frame->length - SPAWN_FIXED;
    if (request->tag_length > left)
        return false;
    const char *at = request->tag + request->tag_length, *end = at + (left - request->tag_length);
    request->cwd = at;
    uint64_t wanted = 1 + (uint64_t)request->argc + request->envc;
    for (uint64_t i = 0; i < wanted; i++) {
        const char *nul = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
        if (!nul)
            return false;
        at = nul + 1;
        if (i == 0)
            request->strings = at;
    }
    return at == end;
}

void frame_parse_read(const struct frame *frame, struct read_request *request)
{
    const uint8_t *b = frame->payload;
    *request = (struct read_request){
        .from = {get_u64(b), get_u64(b + 8)},
        .max_each = get_u32(b + 16),
        .wait_ms = get_u32(b + 20),
        .tag = frame->stream,
    };
}
